# SPDX-License-Identifier: MIT
"""Tests of what plants bugs and judges them, on a small project of its own."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import planting
import run
import trial
import verdict
from trial import Trial, Unusable
from verdict import CAUGHT, ERROR, SURVIVED, Run

MESON = """project('small', 'c')
sums = static_library('sums', 'src/sums.c')
test('sums', executable('check', 'check.c', link_with: sums), suite: 'unit')
"""
SUMS = """int sum(int a, int b)
{
    return a + b;
}

int three(void)
{
    volatile int n = 0;
    while (n < 3)
        n++;
    return n;
}
"""
CHECK = """#include <stdio.h>
int sum(int a, int b);
int three(void);
int main(void)
{
    if (sum(2, 2) == 4 && three() == 3)
        return 0;
    fprintf(stderr, "check.c:8: main: Assertion `sum(2, 2) == 4' failed.\\n");
    return 1;
}
"""
LIST = """# The bugs of the small project.

rule 3.1 A sum is a sum.

a-sum-is-a-difference
in sum
edit a + b => a - b
test unit/sums

a-sum-is-the-other-way-round
in sums.c:sum
edit a + b => b + a
test unit/sums

a-sum-is-not-there
in sum
edit a * b => a - b
test unit/sums

a-sum-is-no-expression
in sum
edit a + b => a +
test unit/sums

rule 3.5 Three is three.

three-never-comes-and-says-so
in three
edit n++ => n += 0
test unit/sums
hangs yes

three-never-comes
in three
edit n++ => n += 0
test unit/sums

three-crashes-on-the-way
in three
edit n < 3 => n / (n - n) < 3
test unit/sums
"""
# Two functions hold the same words, in other lines, beside a declaration, a call and a macro.
TWO = """static int half(int n);
#define HALF(n) half(n) { return n; }
/* half(n) { return n; } */
static int
half(int n)
{
    return n /* the lower
                one */
           / 2;
}

int quarter(int n)
{
    if (half(n)) {
        const char *text = "n / 2 }";
        return text ? half(n)/2 : n  /  2;
    }
    return n;
}
"""


def mutant(**more):
    fields = {"name": "a-b-c", "rule": "3.1", "file": "", "function": "half", "old": "n / 2", "new": "n", "test": "t"}
    return planting.Mutant(**{**fields, **more})


class Lists(unittest.TestCase):
    def test_a_paragraph_is_a_mutant(self):
        found = planting.parse(LIST, "small.list")
        self.assertEqual(found[1], planting.Mutant("a-sum-is-the-other-way-round", "3.1", "sums.c", "sum", "a + b", "b + a",
                                                   "unit/sums"))
        self.assertEqual([m.file for m in found], ["", "sums.c"] + [""] * 5)
        self.assertEqual([m.rule for m in found], ["3.1"] * 4 + ["3.5"] * 3)
        self.assertEqual([m.hangs for m in found], [False] * 4 + [True] + [False] * 2)

    def test_an_edit_may_take_away_or_put_in_front(self):
        text = "rule 3 X\n\na-b-c\nin g\nedit %s\ntest t\n"
        for edit, old, new in [("a(); =>", "a();", ""), ("=> return;", "", "return;")]:
            self.assertEqual(planting.parse(text % edit, "x")[0][4:6], (old, new))

    def test_bad_paragraphs_are_refused_with_the_reason(self):
        good = "rule 3.1 X\n\na-b-c\nin g\nedit a => b\ntest t\n"
        self.assertEqual(len(planting.parse(good, "x")), 1)
        for old, new, reason in [("a-b-c", "abc", "sentence"), ("rule 3.1 X", "rule 9.1 X", "sentence"),
                                 ("rule 3.1 X", "rule 3.1", "sentence"), ("rule 3.1 X\n\n", "", "no rule stands above"),
                                 ("in g\n", "", "no in"), ("in g", "at g", "not understood: at g"),
                                 ("test t\n", "", "no test"), ("test t", "test t\ntest u", "not understood: test u"),
                                 ("=> b", "=>  a /* still */", "changes nothing"), ("=> b", "", "changes nothing")]:
            with self.assertRaisesRegex(planting.BadList, "x: .*" + reason):
                planting.parse(good.replace(old, new), "x")

    def test_a_name_is_there_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("one.list", "two.list"):
                pathlib.Path(folder, name).write_text("rule 3 X\n\na-b-c\nin g\nedit a => b\ntest t\n")
            with self.assertRaisesRegex(planting.BadList, "a-b-c is there twice"):
                planting.read_lists(folder)


class Trees(unittest.TestCase):
    """What is said of a list and a tree."""
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.root = pathlib.Path(held.name)

    def put(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def complaints(self, *mutants):
        return list(planting.complaints(mutants, self.root))

    def test_what_no_mutant_breaks_and_what_cannot_be_planted_is_told(self):
        self.put("src/a.c", TWO)
        found = self.complaints(mutant(), mutant(name="d-e-f", old="n * 2"), mutant(name="g-h-i", function="gone"))
        self.assertEqual(found[:2], ["d-e-f: half has 0 times: n * 2", "g-h-i: gone is defined 0 times: nowhere"])
        self.assertNotIn("no mutant breaks 3.1", found)
        for demand in ("3", "3.2", "3.16", "4.6"):
            self.assertIn("no mutant breaks " + demand, found)

    def test_a_function_is_found_wherever_it_is(self):
        self.put("src/lib/new/two.c", TWO)
        self.assertEqual(planting.home(mutant(), planting.homes(self.root)), "src/lib/new/two.c")

    def test_where_several_files_define_the_function_one_must_be_named(self):
        for name in ("src/one.c", "src/two.c", "src/h/one.h"):
            self.put(name, TWO)
        self.put("src/other.c", TWO.replace("half", "other"))
        homes = planting.homes(self.root)
        self.assertEqual(planting.home(mutant(file="one.c"), homes), "src/one.c")
        for file, reason in [("", "3 times: src/h/one.h src/one.c src/two.c"), ("o.c", "0 times"), ("other.c", "0 times")]:
            with self.assertRaisesRegex(planting.DoesNotApply, "half is defined " + reason):
                planting.home(mutant(file=file), homes)

    def test_a_folder_of_the_product_without_a_mutant_is_told(self):
        folders = ["src/lib/one", "src/lib/two", "src/tools/trace", "src/tools/replay"]
        for folder in folders:
            self.put(folder + "/%s.c" % pathlib.PurePath(folder).name, TWO)
        for without in folders:
            mutants = [mutant(file=pathlib.PurePath(folder).name + ".c") for folder in folders if folder != without]
            told = [line for line in self.complaints(*mutants) if "planted in" in line]
            self.assertEqual(told, ["no mutant is planted in " + without])


class Planting(unittest.TestCase):
    def planted(self, function, old, new):
        return planting.plant(TWO, mutant(function=function, old=old, new=new))

    def test_only_the_body_of_the_named_function_changes(self):
        self.assertEqual(self.planted("half", "n / 2", "n"), TWO.replace("n /* the lower\n                one */\n"
                                                                        "           / 2", "n"))
        self.assertEqual(self.planted("quarter", "n / 2", "n"), TWO.replace("n  /  2", "n"))

    def test_spaces_do_not_matter(self):
        for old in ("half(n) / 2", "half( n )/2", "half (n) /2"):
            self.assertEqual(self.planted("quarter", old, "0"), TWO.replace("half(n)/2", "0"))

    def test_dots_stand_for_what_a_call_is_given(self):
        self.assertEqual(self.planted("quarter", "half(...) / 2", "0"), TWO.replace("half(n)/2", "0"))
        text = TWO.replace("half(n)/2", "half(half(n) + n, 1)/2")
        self.assertEqual(planting.plant(text, mutant(function="quarter", old="half(...) / 2", new="0")),
                         TWO.replace("half(n)/2", "0"))
        with self.assertRaisesRegex(planting.DoesNotApply, r"quarter has 2 times: half\(...\)"):
            self.planted("quarter", "half(...)", "0")

    def test_words_match_whole(self):
        for old in ("f(n)", "ret", "/ 2 }", "n; }"):
            with self.assertRaisesRegex(planting.DoesNotApply, "quarter has 0 times"):
                self.planted("quarter", old, "0")

    def test_without_old_text_the_new_stands_first(self):
        self.assertEqual(self.planted("half", "", "return 0;"), TWO.replace("{\n    return n /*",
                                                                            "{ return 0;\n    return n /*"))

    def test_what_is_not_there_exactly_once_does_not_apply(self):
        for function, old, reason in [("half", "n + 2", "half has 0 times: n \\+ 2"),
                                      ("quarter", "n", "quarter has 4 times: n"),
                                      ("eighth", "n", "eighth is defined 0 times"), ("HALF", "n", "HALF is defined 0 times")]:
            with self.assertRaisesRegex(planting.DoesNotApply, reason):
                self.planted(function, old, "0")
        with self.assertRaisesRegex(planting.DoesNotApply, "half is defined 2 times"):
            planting.plant(TWO + TWO, mutant())


class Judging(unittest.TestCase):
    ASSERTION = "x.c:1: f: Assertion `a' failed.\n"

    def judged(self, run_, **more):
        return verdict.judge(mutant(**more), run_, 1.0)

    def test_a_test_that_fails_and_says_why_is_a_catch(self):
        found = self.judged(Run("s/b", 1, self.ASSERTION, 0.1))
        self.assertEqual((found.kind, found.test, found.message), (CAUGHT, "s/b", self.ASSERTION.strip()))

    def test_a_test_that_passes_lets_it_survive(self):
        found = self.judged(Run("s/a", 0, self.ASSERTION, 0.1))
        self.assertEqual((found.kind, found.message), (SURVIVED, "passed s/a"))

    def test_what_is_no_catch_is_an_error(self):
        for run_ in (Run("s/a", 1, "", 0.1), Run("s/a", 77, self.ASSERTION, 0.1), Run("s/a", None, self.ASSERTION, 60.0),
                     Run("s/a", -11, self.ASSERTION, 0.1),
                     Run("s/a", 1, "Test failed with exception: Segmentation fault(11)\n", 0.1),
                     Run("s/a", 1, "error: cannot open shared object file\n", 0.1),
                     Run("s/a", 1, self.ASSERTION + "run: x: No such file or directory\n", 0.1)):
            self.assertEqual(self.judged(run_).kind, ERROR, run_)

    def test_a_time_out_is_a_catch_where_the_list_says_so(self):
        self.assertEqual(self.judged(Run("s/a", None, "", 10.0), hangs=True).kind, CAUGHT)

    def test_the_telling_line_names_the_case(self):
        output = ("[ RUN      ] good\n[       OK ] good\n[ RUN      ] bad\n"
                  "simulated device: a race (RACE): stream 2\n[  FAILED  ] bad\n")
        self.assertEqual(verdict.telling(output), "bad: simulated device: a race (RACE): stream 2")
        output = ("schedule: gate/failed_record: 6 interleavings, all of them\n"
                  "schedule: gate/begin: thread 1 after 9 steps: nobody can go on\nreplay: gate/begin\n")
        self.assertEqual(verdict.telling(output), "schedule: gate/begin: thread 1 after 9 steps: nobody can go on")
        self.assertEqual(verdict.telling("\nmodel: FAILED: seed 1, program 7\nstep 3: it differs\n"),
                         "FAILED: seed 1, program 7 step 3: it differs")
        output = "1 2 3 0x4 != 0\n[   LINE   ] --- ../test/fuzz/x.c:160: error: Failure!"
        self.assertEqual(verdict.telling(output), "0x4 != 0 (x.c:160)")
        self.assertEqual(verdict.telling(output.replace("0x4", "0")), "0 != 0 (x.c:160)")
        output = "FAIL: test_x (__main__.X)\nTraceback (most recent call last):\nAssertionError: 1 != 2\n"
        self.assertEqual(verdict.telling(output), "test_x: AssertionError: 1 != 2")

    def test_the_figures(self):
        kinds = [CAUGHT, CAUGHT, SURVIVED, ERROR]
        verdicts = [verdict.Verdict("n", kind, "", "", 1.0) for kind in kinds]
        self.assertEqual(verdict.summary(verdicts), "mutants: 4 planted, 2 caught, 1 survived, 1 errors")


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(held.cleanup)
        cls.root = pathlib.Path(held.name, "root")
        (cls.root / "src").mkdir(parents=True)
        for name, text in [("meson.build", MESON), ("src/sums.c", SUMS), ("check.c", CHECK), ("small.list", LIST)]:
            (cls.root / name).write_text(text)
        cls.mutants = planting.parse(LIST, "small.list")
        cls.trial = Trial(cls.root, cls.root / "build-mutants", cls.mutants, 1, [])
        cls.trial.prepare()

    def verdict_of(self, name):
        found = self.trial.try_mutant(self.trial.copies[0], next(m for m in self.mutants if m.name == name))
        self.assertEqual(self.trial.copies[0].read("src/sums.c"), SUMS)
        return found

    def test_a_bug_is_caught_by_its_test(self):
        found = self.verdict_of("a-sum-is-a-difference")
        self.assertEqual((found.kind, found.test), (CAUGHT, "unit/sums"))
        self.assertIn("Assertion `sum(2, 2) == 4' failed", found.message)

    def test_a_change_that_is_no_bug_survives_although_a_bug_was_there_before(self):
        self.assertEqual(self.verdict_of("a-sum-is-a-difference").kind, CAUGHT)
        found = self.verdict_of("a-sum-is-the-other-way-round")
        self.assertEqual((found.kind, found.message), (SURVIVED, "passed unit/sums"))

    def test_what_does_not_apply_or_compile_is_an_error(self):
        found = self.verdict_of("a-sum-is-not-there")
        self.assertEqual((found.kind, found.message), (ERROR, "does not apply: sum has 0 times: a * b"))
        found = self.verdict_of("a-sum-is-no-expression")
        self.assertEqual(found.kind, ERROR)
        self.assertRegex(found.message, "does not compile: .*sums.c:3.*error")

    def test_a_crash_without_a_message_is_an_error(self):
        self.assertEqual(self.verdict_of("three-crashes-on-the-way").kind, ERROR)

    def test_a_hang_is_caught_only_where_it_is_marked(self):
        limits = trial.TESTS_LIMIT_S, trial.HANG_LIMIT_S
        trial.TESTS_LIMIT_S, trial.HANG_LIMIT_S = 1, 1
        try:
            self.assertEqual(self.verdict_of("three-never-comes-and-says-so").kind, CAUGHT)
            found = self.verdict_of("three-never-comes")
        finally:
            trial.TESTS_LIMIT_S, trial.HANG_LIMIT_S = limits
        self.assertEqual(found.kind, ERROR)
        self.assertIn("not marked as a hang", found.message)

    def test_an_unchanged_tree_that_fails_says_nothing_of_mutants(self):
        root = self.root.parent / "failing"
        shutil.copytree(str(self.root), str(root), ignore=shutil.ignore_patterns("build-*"))
        (root / "src/sums.c").write_text(SUMS.replace("a + b", "a - b"))
        broken = Trial(root, root / "build-mutants", self.mutants, 1, [])
        with self.assertRaisesRegex(Unusable, "the unchanged tree fails unit/sums: .*Assertion"):
            broken.prepare()

    def test_a_test_that_nobody_has_is_named(self):
        lost = [self.mutants[0]._replace(test="unit/summs")]
        with self.assertRaisesRegex(Unusable, "no such test: unit/summs"):
            Trial(self.root, self.root / "build-mutants", lost, 1, []).prepare()

    def test_the_parts_are_the_whole(self):
        names = ["b", "a", "d", "c", "e"]
        mutants = [argparse.Namespace(name=name) for name in names]
        parts = []
        for text in "0/2", "1/2":
            arguments = argparse.Namespace(names=[], part=run.part(text))
            parts.append({mutant.name for mutant in run.chosen(mutants, arguments)})
        self.assertEqual(parts, [{"a", "c", "e"}, {"b", "d"}])
        for text in "2/2", "-1/2", "1", "a/b", "0/0":
            self.assertRaises(argparse.ArgumentTypeError, run.part, text)

    def test_the_command_tells_what_is_not_caught_and_fails_then(self):
        command = [sys.executable, "-B", run.__file__, "--root", str(self.root), "--lists", str(self.root), "--keep"]
        two = ["a-sum-is-a-difference", "a-sum-is-not-there"]
        both = subprocess.run(command + two, universal_newlines=True, stdout=subprocess.PIPE, check=False)
        self.assertEqual(both.returncode, 1)
        self.assertRegex(both.stdout, r"\Anot caught: a-sum-is-not-there: ERROR, does not apply: .*\n"
                                      r"mutants: 2 planted, 1 caught, 0 survived, 1 errors, \d+ jobs, \d+ s\n\Z")
        each = subprocess.run(command + ["--verbose"] + two, universal_newlines=True, stdout=subprocess.PIPE, check=False)
        self.assertRegex(each.stdout, r"caught    a-sum-is-a-difference  \(3.1\)\n          unit/sums: .*Assertion.*  \d+\.\d s")
        self.assertRegex(each.stdout, r"not caught: a-sum-is-not-there: .*\nmutants: 2 planted, 1 caught")
        one = subprocess.run(command + two[:1], stdout=subprocess.PIPE, check=False)
        self.assertEqual((one.returncode, one.stdout.count(b"\n")), (0, 1))


if __name__ == "__main__":
    unittest.main()
