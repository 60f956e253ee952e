# SPDX-License-Identifier: MIT
"""Tests of the comparison of conformance programs with the table of differences: what is missing in it, what is stale,
what differs by itself."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import catalogue
import check
import conformance
import verdict
from catalogue import AGAIN, BARE, PRELOADED, Program
from conformance import GPU, SIMULATED, TableError, compare, read_table
from counters import Counters
from process import Outcome

TABLE = """# a comment

cause ends: Past the end
reason Pages are mapped
reason as wholes.
program one two
- set: INVALID
+ set: SUCCESS
program one only gpu
- size: <any>
+ size: 7 of <any>
+ an extra line
- a missing line
unsteady one
- tick <any>
"""


def judged(bare, preloaded, again=None, program="one", where=GPU, table=TABLE):
    outputs = {"bare": bare, "again": bare if again is None else again, "preloaded": preloaded}
    return compare(program, outputs, read_table(table), where)


SAME = "a\nset: INVALID\nb\nsize: 3\n"
OTHER = "a\nset: SUCCESS\nb\nsize: 7 of x\n"


class Comparing(unittest.TestCase):
    def test_what_is_listed_is_explained(self):
        found = judged("set: INVALID\nsize: 3\na missing line\nz\n", "set: SUCCESS\nsize: 7 of x\nan extra line\nz\n",
                       table=TABLE.replace("+ an extra line\n- a missing line\n", "- a missing line\n+ an extra line\n"))
        self.assertEqual((found.complaints(), found.explained), ([], 3))

    def test_a_missing_explanation_is_named_with_both_lines(self):
        found = judged(SAME, OTHER + "new\n", program="two")
        self.assertEqual(found.unexplained, [("size: 3", "size: 7 of x"), (None, "new")])
        self.assertIn("not explained, 1 times: 'size: 3' and 'size: 7 of x'", found.complaints()[0])
        self.assertEqual(conformance.as_entries("two", found), "program two\n- size: 3\n+ size: 7 of x\n+ new\n")

    def test_the_other_way_round_is_not_explained(self):
        self.assertEqual(judged("set: SUCCESS\n", "set: INVALID\n", program="two").unexplained,
                         [("set: SUCCESS", "set: INVALID")])

    def test_another_program_has_no_explanation(self):
        self.assertEqual(len(judged(SAME, OTHER, program="three").unexplained), 2)

    def test_an_explanation_that_does_not_occur_is_stale(self):
        found = judged(SAME, SAME, program="two")
        self.assertEqual(len(found.stale), 1)
        self.assertIn("explained, but not seen: 'set: INVALID' and 'set: SUCCESS'", found.complaints()[0])

    def test_an_explanation_for_a_gpu_is_not_stale_elsewhere_and_explains_nothing_there(self):
        found = judged("set: INVALID\n", "set: SUCCESS\n", where=SIMULATED)
        self.assertEqual(found.complaints(), [])
        self.assertEqual(len(judged(SAME, OTHER, where=SIMULATED).unexplained), 1)

    def test_lines_that_come_or_go_are_found_and_explained(self):
        found = judged("a\nset: INVALID\nsize: 1\na missing line\nb\nc\nd\n",
                       "a\nset: SUCCESS\nsize: 7 of 1\nb\nan extra line\nc\nd\n"[:-2])
        self.assertEqual(found.unexplained, [("d", None)])
        self.assertEqual(found.stale, [])

    def test_a_line_that_differs_by_itself_is_not_held_against_the_library(self):
        found = judged("a\nx 1\nset: INVALID\n", "a\nx 3\nset: SUCCESS\n", again="a\nx 2\nset: INVALID\n",
                       program="two")
        self.assertEqual((found.unexplained, found.unsteady), ([], ["x 1"]))
        self.assertIn("bare: differs by itself: 'x 1'", found.complaints()[0])

    def test_a_listed_unsteady_line_is_no_complaint_even_when_it_was_steady(self):
        table = TABLE[:TABLE.index("program one only")] + "unsteady two\n- tick <any>\n"
        for again in ("tick 1\nset: INVALID\n", "tick 2\nset: INVALID\n"):
            found = judged("tick 1\nset: INVALID\n", "tick 3\nset: SUCCESS\n", again=again, program="two", table=table)
            self.assertEqual(found.complaints(), [])

    def test_measurements_and_marks_are_not_compared(self):
        self.assertEqual(judged("# t 1\na\n", "# t 2\na\n", program="three").complaints(), [])


class Reading(unittest.TestCase):
    def test_causes(self):
        cause = read_table(TABLE).causes[0]
        self.assertEqual((cause.name, cause.title, cause.reason), ("ends", "Past the end", "Pages are mapped as wholes."))

    def test_lines_that_make_no_sense(self):
        for text in ("what", "- a\n", "cause a: b\n- a\n", "cause a: b\nprogram one only moon\n- a\n+ b\n"):
            with self.assertRaises(TableError, msg=text):
                read_table(text)

    def test_causes_are_few(self):
        with self.assertRaises(TableError):
            read_table("".join(f"cause c{i}: title\n" for i in range(conformance.CAUSES_MOST + 1)))

    def test_the_committed_table_is_good_and_names_programs_that_there_are(self):
        table = conformance.load_table()
        names = {program.differs_as for program in catalogue.CONFORMANCE}
        for cause in table.causes:
            self.assertTrue(cause.title and cause.reason and cause.entries, cause.name)
            self.assertLessEqual({entry.program for entry in cause.entries}, names)
        self.assertEqual(conformance.main(["--check"]), 0)

    def test_nothing_is_explained_where_frees_wait(self):
        self.assertEqual(conformance.load_table().entries_of("waiting,frees-wait", GPU), [])

    def test_the_page(self):
        text = conformance.page(read_table(TABLE))
        self.assertIn("## Past the end\n", text)
        self.assertIn("| `set: INVALID` | `set: SUCCESS` | `one`, `two` |", text)
        self.assertIn("| no line | `an extra line` | `one` (a GPU only) |", text)


class Judging(unittest.TestCase):
    def result(self, preloaded, again="x\n"):
        result = verdict.Result(Program("conformance", "x", "x", cudart="static", serves=None, passes=None,
                                        differs_as="no such program"))
        for run, output in ((BARE, "x\n"), (AGAIN, again), (PRELOADED, preloaded)):
            result.outcomes[run] = Outcome(code=0, output=output)
        result.counters = Counters(found=True)
        verdict.judge(result)
        return result

    def test_through_the_verdict(self):
        self.assertTrue(self.result("x\n").good)
        self.assertEqual(self.result("y\n").differences, ["preloaded: not explained, 1 times: 'x' and 'y'"])
        self.assertEqual(self.result("z\n", again="y\n").differences, ["bare: differs by itself: 'x'"])

    def test_what_is_not_explained_is_kept_as_the_table_would_list_it(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            path = Path(folder) / "unexplained.txt"
            check.keep_unexplained([self.result("x\n"), self.result("y\n")], path)
            self.assertEqual(path.read_text(), "program no such program\n- x\n+ y\n")
            check.keep_unexplained([self.result("x\n")], path)
            self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()
