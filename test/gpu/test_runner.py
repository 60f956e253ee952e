# SPDX-License-Identifier: MIT
"""Tests of what runs the GPU suites: runner, comparer, counters, verdicts, tables; with programs that need no GPU."""
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import build
import catalogue
import check
import counters
import launch
import verdict
from catalogue import Bar, Program
from counters import Counters
from process import Outcome, compared, difference, printed_figures
from verdict import AGAIN, BARE, PRELOADED, Result


class InFolder(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)


class Comparing(unittest.TestCase):
    def test_measurements_and_marks_are_not_compared(self):
        self.assertEqual(compared("a\n# time 3\n@mark\nb"), ["a\n", "b"])
        self.assertEqual(difference("a\n# x 1\n", "# y 2\na\n"), "")

    def test_the_first_difference_is_named(self):
        self.assertEqual(difference("a\nb\nc\n", "a\nx\ny\n"), "line 2: 'b' and 'x'")

    def test_a_missing_line_and_a_missing_end_of_line_differ(self):
        self.assertIn("first extra: 'b'", difference("a\nb\n", "a\n"))
        self.assertIn("first extra: 'b'", difference("a\n", "a\nb\n"))
        self.assertNotEqual(difference("a\n", "a"), "")

    def test_figures_are_numbers_only(self):
        self.assertEqual(printed_figures("# t_us 1.5\n# device name\nt 2\n# a b 3\n# n 4\n"), {"t_us": 1.5, "n": 4.0})


class ReadingCounters(InFolder):
    def write(self, name, *values):
        (self.folder / name).write_text("\n".join(json.dumps(value) for value in values))

    def test_all_processes_and_kinds_are_added(self):
        self.write("stats.1.json", {"vpmm_stats": 1, "devices": [], "requests": {
            "cudaMalloc": {"pool": 3, "small": 2, "full": 0}, "cudaMallocAsync": {"pool": 4, "explicit_pool": 1}}})
        self.write("stats.2.json", {"devices": [{"device": 1, "held_bytes": 6}, {"device": 0, "held_bytes": 1}],
                                    "requests": {"cudaMalloc": {"pool": 1, "small": 1}}})
        found = counters.read_counters(self.folder)
        self.assertTrue(found.found)
        self.assertEqual((found.served, found.passed), (8, {"small": 3, "explicit_pool": 1}))
        self.assertEqual(found.passed_text(), "1 explicit pool, 3 small")
        self.assertEqual(found.figures, {"held_bytes": 7})
        self.write("stats.3.json", {"devices": [{"device": 0, "moved_bytes": 3 << 29}]})
        self.assertEqual(counters.read_counters(self.folder).figures["moved_gib"], 1.5)
        self.assertEqual(found.complaints, [])

    def test_nothing_found_and_nothing_readable(self):
        self.assertFalse(counters.read_counters(self.folder).found)
        (self.folder / "stats.1.json").write_text('{"requests": ')
        self.assertEqual(len(counters.read_counters(self.folder).complaints), 1)

    def test_an_audit_that_complains_is_a_complaint(self):
        self.write("stats.1.json", {"devices": [{"device": 0, "audit": "two regions overlap"}]})
        self.assertEqual(counters.read_counters(self.folder).complaints, ["device 0: audit two regions overlap"])
        self.write("stats.1.json", {"devices": [{"device": 0, "audit": "clean", "audit_failures": 0}]})
        self.assertEqual(counters.read_counters(self.folder).complaints, [])

    def test_an_incomplete_dump_is_told_from_a_complete_one(self):
        self.assertEqual(counters.json_values('{"a": 1}\n{"b": 2}\n'), [{"a": 1}, {"b": 2}])
        with self.assertRaises(ValueError):
            counters.json_values('{"a": 1}\n{"b": ')

    def dump(self, live_pages):
        regions = [{"address": "0x1000", "state": "live", "pages": live_pages},
                   {"address": hex(0x1000 + live_pages * 16), "state": "hole", "pages": 3}]
        return {"devices": [{"page_bytes": 16, "live_bytes": live_pages * 16, "reserved_bytes": (live_pages + 3) * 16,
                             "held_bytes": 32, "busy_bytes": 0, "quarantined_bytes": 0, "regions": regions}]}

    def test_the_sums_of_a_dump(self):
        self.assertEqual(counters.dump_figures(self.dump(2)),
                         {"live_bytes": 32.0, "unsettled_bytes": 0.0, "held_bytes": 32.0, "wrong_sums": 0.0})

    def test_pages_that_blocks_share_are_live_for_these(self):
        dump = self.dump(3)
        dump["devices"][0]["small"] = [{"pages": 1, "blocks": 2, "requested_bytes": 5}, {"pages": 1, "blocks": 0, "requested_bytes": 0}]
        figures = counters.dump_figures(dump)
        self.assertEqual((figures["live_bytes"], figures["wrong_sums"]), (21.0, 0.0))

    def test_sums_that_do_not_add_up(self):
        for change in ({"live_bytes": 16}, {"reserved_bytes": 16}):
            dump = self.dump(2)
            dump["devices"][0].update(change)
            self.assertEqual(counters.dump_figures(dump)["wrong_sums"], 1.0)
        dump = self.dump(2)
        dump["devices"][0]["regions"].reverse()
        self.assertEqual(counters.dump_figures(dump)["wrong_sums"], 0.0)
        dump["devices"][0]["regions"][0]["address"] = "0x1010"
        self.assertEqual(counters.dump_figures(dump)["wrong_sums"], 1.0)


def program(**more):
    return Program(**{"part": "part", "name": "name", "source": "source", **more})


def judged(bare="x\n", again="x\n", preloaded="x\n", codes=(0, 0, 0), figures=None, counts=None, **more):
    result = Result(program(**more))
    for run_, output, code in zip((BARE, AGAIN, PRELOADED), (bare, again, preloaded), codes):
        result.outcomes[run_] = Outcome(code=code, output=output, seconds=1.0)
    result.outcomes[PRELOADED].figures.update(figures or {})
    result.counters = counts or Counters(found=True, served=5)
    verdict.judge(result)
    return result


class Judging(unittest.TestCase):
    def test_all_alike_is_good(self):
        self.assertTrue(judged().good)

    def test_differences_are_found(self):
        self.assertEqual(len(judged(preloaded="y\n").differences), 1)
        self.assertEqual(len(judged(again="y\n").differences), 1)

    def test_an_error_is_bad_even_when_all_runs_agree_unless_it_may(self):
        self.assertEqual(len(judged(codes=(1, 1, 1)).differences), 3)
        self.assertTrue(judged(codes=(1, 1, 1), may_fail=True).good)
        self.assertFalse(judged(codes=(1, 1, 0), may_fail=True).good)

    def test_a_hang_is_named(self):
        result = judged(codes=(0, 0, None), may_fail=True)
        self.assertEqual(len(result.differences), 1)
        self.assertIn("preloaded: HANGS", result.differences[0])

    def test_trouble_is_named(self):
        result = judged(codes=(None, 0, 0))
        self.assertIn("bare: HANGS", result.differences[0])

    def test_counters_prove_that_the_pool_served(self):
        self.assertFalse(judged(counts=Counters(found=True, served=0)).good)
        self.assertFalse(judged(counts=Counters(found=False)).good)
        self.assertFalse(judged(counts=Counters(found=False), serves=None).good)
        self.assertTrue(judged(counts=Counters(found=False), serves=None, may_fail=True).good)
        self.assertTrue(judged(counts=Counters(found=True), serves=None).good)
        self.assertTrue(judged(counts=Counters(True, 1, {"small": 9})).good)
        self.assertFalse(judged(counts=Counters(True, 1, {"full": 1})).good)
        self.assertTrue(judged(counts=Counters(True, 1, {"full": 1}), passes=frozenset({"full"})).good)
        self.assertTrue(judged(counts=Counters(True, 1, {"full": 1}), passes=None).good)
        self.assertFalse(judged(counts=Counters(True, 1, complaints=["audit"])).good)

    def test_bars(self):
        bars = (Bar("us", "below 10", 10.0), Bar("held", "5 to 6", 6.0, 5.0))
        self.assertTrue(judged(bars=bars, figures={"us": 10.0, "held": 5.0}).good)
        self.assertEqual(len(judged(bars=bars, figures={"us": 10.1, "held": 4.9}).breaches), 2)
        self.assertEqual(len(judged(bars=bars).breaches), 2)

    def test_a_bar_may_be_on_what_the_library_counted(self):
        bars = (Bar("stitches", "at least 3", least=3.0),)
        self.assertTrue(judged(bars=bars, counts=Counters(True, 1, figures={"stitches": 3})).good)
        self.assertFalse(judged(bars=bars, counts=Counters(True, 1, figures={"stitches": 2})).good)
        self.assertFalse(judged(bars=bars, counts=Counters(True, 1)).good)


class Tables(unittest.TestCase):
    def setUp(self):
        self.results = [
            judged(counts=Counters(True, 7, {"small": 2}), bars=(Bar("us", "below 10", 10.0),), figures={"us": 2.5}),
            judged(name="a|b", preloaded="y\n"),
            Result(program(name="absent"), left_out="not installed"),
        ]

    def test_rows(self):
        self.assertEqual(verdict.rows(self.results), [
            ["part/name", "7", "2 small", "yes", "1.0, 1.0"],
            ["part/a|b", "5", "none", "NO", "1.0, 1.0"],
            ["part/absent", "", "", "not installed", ""],
        ])
        self.assertEqual(verdict.figure_rows(self.results), [["part/name", "us", "none", "2.5", "below 10", "yes"]])

    def test_what_is_left_out_did_not_pass_and_is_not_wrong(self):
        self.assertNotIn("yes", verdict.rows(self.results)[2])
        self.assertTrue(self.results[2].good)
        self.assertEqual(verdict.counts(self.results), "1 passed, 1 failed, 1 not run")

    def test_markdown_and_text(self):
        text = verdict.as_markdown(["h", "i"], [["a|b", "c"]])
        self.assertEqual(text, "| h | i |\n| --- | --- |\n| a\\|b | c |\n")
        self.assertEqual(verdict.as_text(["h", "i"], [["long", "c"]]), "h     i\nlong  c\n")

    def test_the_page_names_what_is_wrong(self):
        page = verdict.page(self.results, "a machine", "a command")
        self.assertIn("a machine", page)
        self.assertIn("- part/a|b: preloaded: differs from bare: line 1: 'x' and 'y'\n", page)


class Catalogue(unittest.TestCase):
    def test_every_source_is_there_and_every_name_is_used_once(self):
        names = [p.full_name for p in catalogue.PROGRAMS]
        self.assertEqual(len(names), len(set(names)))
        for p in catalogue.PROGRAMS:
            self.assertTrue(build.source_of(p).exists(), p.full_name)

    def test_every_run_has_a_folder_of_its_own(self):
        folders = {launch.folder_name(p, label) for p in catalogue.PROGRAMS for label in p.runs}
        self.assertEqual(len(folders), sum(len(p.runs) for p in catalogue.PROGRAMS))

    def test_every_program_runs_bare_first_and_preloaded(self):
        for p in catalogue.PROGRAMS:
            self.assertEqual((p.runs[0], p.runs[-1]), (BARE, PRELOADED), p.full_name)

    def test_every_time_limit_is_of_a_part(self):
        self.assertLessEqual(set(catalogue.PART_LIMITS_S), set(catalogue.parts()))

    def test_select(self):
        self.assertEqual(catalogue.select([]), catalogue.PROGRAMS)
        self.assertEqual({p.part for p in catalogue.select(["free", "leak"])}, {"free", "leak"})
        self.assertEqual([p.name for p in catalogue.select(["python/Numba"])], ["Numba"])
        with self.assertRaises(ValueError):
            catalogue.select(["free", "nothing"])


class Checking(InFolder):
    """The whole of a part, with stand-ins in place of its programs."""

    def part(self, text, **more):
        (self.folder / "stand_in.py").write_text(text)
        checker = check.Checker(Path("/nowhere/libvpmm.so"), 2, 1)
        stand_in = lambda *_: [sys.executable, str(self.folder / "stand_in.py")]  # noqa: E731
        with replaced(launch, "command_of", stand_in), replaced(launch, "RUNS", self.folder / "runs"), \
                contextlib.redirect_stdout(io.StringIO()):
            return checker.part([program(**more), program(name="other", devices=2),
                                 program(name="missing", needs="no_such_package")])

    STATISTICS = ("import json, os\npath = os.environ.get('VPMM_STATS')\n"
                  "if path: open(path.replace('%p', str(os.getpid())), 'w').write("
                  "json.dumps({'requests': {'cudaMalloc': {'pool': 2}}}))\n")

    def test_the_library_is_preloaded_once_in_three(self):
        good, other, missing = self.part(self.STATISTICS + "print('same')")
        self.assertTrue(good.good, verdict.problems([good]))
        self.assertEqual(good.counters.served, 2)
        self.assertEqual((other.left_out, missing.left_out), ("needs 2 devices", "not installed"))

    def test_the_environment_of_the_preloaded_run(self):
        result = self.part(self.STATISTICS + "print('/nowhere/libvpmm.so' in os.environ.get('LD_PRELOAD', ''))")[0]
        self.assertEqual(result.differences, ["preloaded: differs from bare: line 1: 'False' and 'True'"])

    def test_peaks_are_shares_of_the_device(self):
        text = ("import json, os\nprint('# device_bytes 200')\npath = os.environ.get('VPMM_STATS')\n"
                "statistics = {'requests': {'cudaMalloc': {'pool': 1}}, "
                "'devices': [{'device': 0, 'live_peak_bytes': 190}]}\n"
                "if path: open(path.replace('%p', '1'), 'w').write(json.dumps(statistics))\n")
        bars = (Bar("live_peak_percent", "at least 95", least=95.0),)
        self.assertTrue(self.part(text, bars=bars)[0].good)
        self.assertFalse(self.part(text, bars=(Bar("live_peak_percent", "more", least=95.1),))[0].good)

    def test_bandwidth_is_a_share_of_both_bare_runs(self):
        folder = self.folder
        text = self.STATISTICS + (
            "import pathlib\nturn = pathlib.Path(%r)\nn = int(turn.read_text()) if turn.exists() else 0\n"
            "turn.write_text(str(n + 1))\nprint('# bandwidth_gb_s', (90, 110, 98)[n])\n" % str(folder / "turn"))
        bars = (Bar("bandwidth_percent", "at least 98", least=98.0),)
        self.assertTrue(self.part(text, bars=bars, alone=True)[0].good)
        (folder / "turn").unlink()
        self.assertFalse(self.part(text.replace("98)[n]", "97)[n]"), bars=bars, alone=True)[0].good)

    def test_memory_is_counted_from_the_bare_context(self):
        used = iter([100.0, 150.0, 101.0, 150.0, 90.0, 170.0])
        with replaced(check.device, "used_mib", lambda: next(used)):
            text = self.STATISTICS + "for m in 'before', 'after':\n    print('@' + m, flush=True)\n    input()"
            result = self.part(text, look="memory", alone=True)[0]
        self.assertEqual([result.figure(label, "held_mib") for label in (BARE, PRELOADED)], [50.0, 70.0])

    def test_a_dump_is_asked_for_and_read(self):
        shutil.copy(Path(__file__).parent / "dumper.py", self.folder)
        text = self.STATISTICS + (
            "import dumper\ndumper.start(json.dumps({'devices': []}) + '\\n')\n"
            "for _ in range(2):\n    print('@idle', flush=True)\n    input()\n")
        result = self.part(text, look="regions", bars=(Bar("live_bytes_2", "0", 0.0, 0.0),))[0]
        self.assertTrue(result.good, verdict.problems([result]))
        self.assertIn("wrong_sums_1", result.outcomes[PRELOADED].figures)

    def test_an_earlier_dump_is_not_taken_for_the_wanted_one(self):
        path = self.folder / "dump.json"
        path.write_text('{"devices": []}\n')
        with replaced(counters.os, "kill", lambda *_: None), replaced(counters, "DUMP_LIMIT_S", 0.1):
            self.assertIn("live_bytes_1", check.regions(0, 1, path))
            with self.assertRaises(ValueError):
                check.regions(0, 2, path)

    def test_a_dump_is_not_there_before_its_file_is_closed(self):
        path = self.folder / "dump.json"
        with path.open("w") as file, replaced(counters.os, "kill", lambda *_: None):
            file.write('{"devices": []}\n')
            file.flush()
            with replaced(counters, "DUMP_LIMIT_S", 0.1), self.assertRaises(ValueError):
                counters.ask_dump(os.getpid(), 1, path)
            with replaced(counters.time, "sleep", lambda _: file.close()):
                self.assertEqual(counters.ask_dump(os.getpid(), 1, path), {"devices": []})
                self.assertTrue(file.closed)

    def test_no_time_is_left(self):
        with replaced(catalogue, "PART_LIMIT_S", -1.0):
            result = self.part("print()")[0]
        self.assertIn("bare: the part's time is over", result.differences)


@contextlib.contextmanager
def replaced(owner, name, value):
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


if __name__ == "__main__":
    unittest.main()
