# SPDX-License-Identifier: MIT
"""Tests of single GPU parts without a GPU: compute-sanitizer's words, refreshed outputs, the soak's judgement."""
import contextlib
import io
import json
import os
import shutil
import sys
import unittest
from pathlib import Path
from unittest import mock

import build
import catalogue
import check
import fidelity
import launch
import memcheck
import soak
from catalogue import BARE, DRIVER, PRELOADED, Program
from counters import Counters
from process import Outcome
from test_runner import InFolder



CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
DIRTY = ("========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 8 bytes\n"
         "=========     at fill_kernel+0x90\n========= ERROR SUMMARY: 2 errors\n")


class Memcheck(InFolder):
    def outcome(self, log="", output="same\n", errors="", code=0):
        (self.folder / memcheck.LOG).write_text(log)
        outcome = Outcome(code=code, output=output, errors=errors)
        memcheck.read(outcome, self.folder)
        return outcome

    def test_the_number_of_errors_and_the_first_words(self):
        self.assertEqual(self.outcome(CLEAN).figures, {memcheck.FIGURE: 0.0})
        dirty = self.outcome(DIRTY)
        self.assertEqual(dirty.figures, {memcheck.FIGURE: 2.0})
        self.assertIn("Invalid __global__ write", dirty.errors)

    def test_the_tools_words_are_not_the_programs(self):
        outcome = self.outcome(output="one\n========= ERROR SUMMARY: 3 errors\ntwo\n")
        self.assertEqual((outcome.output, outcome.figures), ("one\ntwo\n", {memcheck.FIGURE: 3.0}))

    def test_a_device_that_is_refused_is_named_and_not_a_pass(self):
        for words in (dict(log="========= Error: Device not supported. Please refer to the documentation\n" + CLEAN),
                      dict(errors="Error: Device not supported\n", code=1),
                      dict(log="========= Internal Sanitizer Error: The Sanitizer encountered an error\n", code=1)):
            text = memcheck.refusal(self.outcome(**words))
            self.assertRegex(text, "^not run: compute-sanitizer refuses the device: .*(Device not|Internal)")

    def test_no_summary_and_no_end_are_no_pass(self):
        self.assertIn("no summary: what is this", memcheck.refusal(self.outcome(errors="what is this\n", code=1)))
        self.assertIn("no summary: it says nothing", memcheck.refusal(self.outcome()))
        self.assertIn("does not finish bare", memcheck.refusal(self.outcome(CLEAN, code=None)))

    def test_a_bare_run_with_a_summary_counts(self):
        self.assertEqual(memcheck.refusal(self.outcome(CLEAN)), "")
        self.assertEqual(memcheck.refusal(self.outcome(DIRTY, code=1)), "")

    def test_errors_are_differences_even_when_bare_has_them(self):
        clean, dirty, silent = self.outcome(CLEAN), self.outcome(DIRTY), self.outcome()
        self.assertEqual(memcheck.differences({BARE: clean, PRELOADED: clean}, False), [])
        self.assertEqual(memcheck.differences({BARE: clean, PRELOADED: dirty}, False),
                         ["preloaded: compute-sanitizer reports 2 errors"])
        self.assertEqual(len(memcheck.differences({BARE: dirty, PRELOADED: dirty}, False)), 2)
        self.assertEqual(memcheck.differences({BARE: clean, PRELOADED: silent}, False),
                         ["preloaded: compute-sanitizer gives no summary"])

    def test_expected_errors_must_be_as_many_as_bare(self):
        clean, dirty = self.outcome(CLEAN), self.outcome(DIRTY)
        self.assertEqual(memcheck.differences({BARE: dirty, PRELOADED: dirty}, True), [])
        self.assertEqual(memcheck.differences({BARE: dirty, PRELOADED: clean}, True),
                         ["preloaded: compute-sanitizer reports 0 errors, bare 2"])

    TOOL = """#!{python}
import os, subprocess, sys
at = sys.argv.index("--log-file") + 1
code = subprocess.run(sys.argv[at + 1:]).returncode
open(sys.argv[at], "w").write({log!r})
sys.exit(code)
"""
    PROGRAM = """#!{python}
import json, os
path = os.environ.get("VPMM_STATS")
if path: open(path.replace("%p", "1"), "w").write(json.dumps({{"requests": {{"cudaMalloc": {{"pool": 1}}}}}}))
print("same")
"""

    def executable(self, name, text, **more):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, **more))
        path.chmod(0o755)
        return path

    def row(self, log, found=True):
        """The whole way through the checker, with a stand-in for the tool and the program."""
        tool = self.executable("tool", self.TOOL, log=log)
        own = self.executable("program", self.PROGRAM)
        program = Program("memcheck", "x", "x", cudart="static", runs=(BARE, PRELOADED), alone=True,
                          sanitizer=("--tool", "memcheck"))
        checker = check.Checker(Path("/nowhere/libvpmm.so"), 1, 1)
        with mock.patch.object(memcheck, "find", lambda: tool if found else None), \
                mock.patch.object(build, "binary", lambda _: own), \
                mock.patch.object(launch, "RUNS", self.folder / "runs"), contextlib.redirect_stdout(io.StringIO()):
            return checker.part([program])[0]

    def test_through_the_checker(self):
        clean, dirty = self.row(CLEAN), self.row(DIRTY)
        self.assertEqual((clean.left_out, clean.differences, clean.breaches), ("", [], []))
        self.assertEqual(len(dirty.differences), 2)

    def test_not_run_through_the_checker(self):
        refused, missing = self.row("========= Error: Device not supported.\n"), self.row(CLEAN, found=False)
        self.assertIn("refuses the device: Error: Device not supported.", refused.left_out)
        self.assertNotIn(PRELOADED, refused.outcomes)
        self.assertEqual(missing.left_out, "not run: no compute-sanitizer")


class Refreshing(InFolder):
    def refresh(self, text):
        path = self.folder / "truth.py"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        program = Program("fidelity", "x", "x", cudart=DRIVER)
        with mock.patch.object(build, "binary", lambda _: path), mock.patch.object(build, "PROGRAMS", self.folder):
            return fidelity.refresh([program], self.folder)

    def test_outputs_are_written(self):
        self.assertEqual(self.refresh("print('a'); print('b')"), (["x: 2 lines changed"], []))
        self.assertEqual((self.folder / "x.txt").read_text(), "a\nb\n")
        self.assertEqual(self.refresh("print('a'); print('b')"), (["x: as before"], []))
        self.assertEqual(self.refresh("print('a'); print('c')"), (["x: 1 lines changed"], []))

    def test_nothing_doubtful_is_written(self):
        (self.folder / "x.txt").write_text("old\n")
        for text, why in (("print('new'); raise SystemExit(3)", "ends with 3; the last line is 'new'"),
                          ("import os\nprint('same')\nprint(os.getpid())", "two runs differ at line 2")):
            done, refused = self.refresh(text)
            self.assertEqual(done, [])
            self.assertIn(why, refused[0])
            self.assertEqual((self.folder / "x.txt").read_text(), "old\n")


def samples(n, **figures):
    """`n` rounds, after a warm-up that is not like them; a figure is a number or a function of the round."""
    def value(figure, i):
        return float(figure(i) if callable(figure) else figure)

    warm_up = [{name: 99999.0 for name in figures}] * soak.WARM_UP_ROUNDS
    return warm_up + [{name: value(figure, i) for name, figure in figures.items()} for i in range(n)]


GROWING = soak.Rule("x", "less than 10 above", more=9.0)
EQUAL = soak.Rule("x", "equal", more=0.0, less=0.0)
NONE = soak.Rule("x", "0 in every round", always=0.0)
FLOOR = soak.Rule("x", "floor less than 10 above", more=9.0, floor=True)


class Soaking(unittest.TestCase):
    def test_the_warm_up_is_not_judged(self):
        for rule in (GROWING, EQUAL):
            self.assertEqual(soak.judge(samples(20, x=5), [rule]), [])
        self.assertEqual(soak.judge(samples(20, x=0), [NONE]), [])

    def test_too_few_rounds_are_no_pass(self):
        self.assertIn("too few", soak.judge(samples(soak.JUDGED_ROUNDS_LEAST - 1, x=5), [EQUAL])[0])
        self.assertIn("too few", soak.judge([], [EQUAL])[0])

    def test_steady_growth_is_found(self):
        self.assertEqual(soak.judge(samples(40, x=lambda i: 100 + i), [GROWING]), ["x grows from 104.5 to 134.5"])
        self.assertEqual(soak.judge(samples(40, x=lambda i: 100 + i / 10), [GROWING]), [])
        self.assertEqual(soak.judge(samples(40, x=lambda i: 50 if i < 25 or i % 7 == 0 else 100), [FLOOR]), [])
        self.assertEqual(soak.judge(samples(40, x=lambda i: 100 + i), [FLOOR]), ["x grows from 100 to 130"])

    def test_growth_of_one_is_found_where_nothing_may_grow(self):
        grown = samples(40, x=lambda i: 5 if i < 30 else 6)
        self.assertEqual(soak.judge(grown, [EQUAL]), ["x grows from 5 to 6"])
        self.assertEqual(soak.judge(grown, [soak.Rule("x", "not above", more=0.0)]), ["x grows from 5 to 6"])

    def test_less_is_allowed_only_where_it_is_said(self):
        fallen = samples(40, x=lambda i: 5 if i < 30 else 4)
        self.assertEqual(soak.judge(fallen, [GROWING]), [])
        self.assertEqual(soak.judge(fallen, [EQUAL]), ["x falls from 5 to 4"])

    def test_a_single_peak_is_no_growth_but_breaks_a_constant(self):
        peak = samples(40, x=lambda i: 7 if i == 38 else 0)
        self.assertEqual(soak.judge(peak, [EQUAL]), [])
        self.assertEqual(soak.judge(peak, [NONE]),
                         ["x is not 0 in 1 of 40 rounds, first 7 in round 39 after the warm-up"])

    def test_a_missing_figure_is_found(self):
        self.assertEqual(soak.judge(samples(20, y=1), [EQUAL]), ["x is missing in 20 rounds"])

    def test_every_rule_that_is_not_shown_only_can_be_broken(self):
        for rule in [*soak.HOST_RULES, *soak.POOL_RULES]:
            broken = soak.judge(samples(20, **{rule.figure: lambda i: 1 + i * 1000}), [rule])
            self.assertEqual(len(broken), 0 if rule.text == "shown only" else 1, rule)

    def test_the_table(self):
        self.assertEqual(soak.table(samples(20, x=lambda i: i), [GROWING]),
                         [["x", "2", "17", "0", "19", "less than 10 above", "NO"]])

    GOOD = Counters(True, 5, figures={"moved_bytes": 1})

    def test_the_run_as_a_whole(self):
        good = Outcome(code=0, seconds=3.0)
        self.assertEqual(soak.judge_run(good, self.GOOD, True), [])
        self.assertEqual(soak.judge_run(good, Counters(), False), [])
        for counters, text in ((Counters(), "no statistics"), (Counters(True), "no request"),
                               (Counters(True, 5), "no page was moved"),
                               (Counters(True, 5, complaints=["audit"], figures={"moved_bytes": 1}), "audit")):
            self.assertIn(text, soak.judge_run(good, counters, True)[0])
        for outcome, text in ((Outcome(), "HANGS"), (Outcome(code=1), "ends with 1"), (Outcome(trouble="no"), "no")):
            self.assertIn(text, soak.judge_run(outcome, self.GOOD, True)[0])


class Sampling(InFolder):
    DUMP = {"devices": [{
        "page_bytes": 1 << 20, "held_bytes": 2 << 20, "live_bytes": 1 << 20, "reusable_bytes": 1 << 20, "zombie_bytes": 0,
        "busy_bytes": 0, "quarantined_bytes": 0, "reserved_bytes": 2 << 20, "extents": 3, "mappings": 4, "regions": [
            {"address": "0x100000", "state": "live", "pages": 1},
            {"address": "0x200000", "state": "free", "pages": 1}]}]}

    def test_the_figures_of_a_dump(self):
        figures = soak.pool_figures(self.DUMP)
        self.assertEqual((figures["held_mib"], figures["live_mib"], figures["mappings"], figures["wrong_sums"]),
                         (2.0, 1.0, 4.0, 0.0))

    def test_a_dump_of_no_pool_is_no_sample(self):
        with self.assertRaises(ValueError):
            soak.pool_figures({"devices": []})

    def test_this_process(self):
        figures = soak.host_figures(os.getpid())
        self.assertGreater(figures["rss_kib"], 1000)
        with open("/dev/null"):
            self.assertEqual(soak.host_figures(os.getpid())["fds"], figures["fds"] + 1)

    def test_every_rule_has_a_figure(self):
        path = self.folder / "dump.json"
        sampler = soak.Sampler(self.folder, True, 1.0)
        write = lambda *_: path.write_text(json.dumps(self.DUMP))  # noqa: E731
        with mock.patch("counters.os.kill", write), mock.patch.object(soak.device, "used_mib", lambda: 5.0):
            for mark in ("idle", "trimmed"):
                self.assertEqual(sampler.look(mark, os.getpid(), 0), {})
        self.assertEqual(len(sampler.samples), 1)
        for rule in [*soak.HOST_RULES, *soak.POOL_RULES]:
            self.assertIn(rule.figure, sampler.samples[0])
        soak.write_csv(sampler.samples, self.folder / "samples.csv")
        self.assertEqual(len((self.folder / "samples.csv").read_text().splitlines()), 2)

    PROGRAM = """#!{python}
import json, os, sys
import dumper
stats = os.environ.get("VPMM_STATS")
dumper.start({dump!r})
for i in range({rounds}):
    for mark in "idle", "trimmed":
        print("@" + mark, flush=True)
        sys.stdin.readline()
counted = {{"requests": {{"cudaMalloc": {{"pool": 1}}}}, "devices": [{{"device": 0, "moved_bytes": 1}}]}}
if stats: open(stats.replace("%p", "1"), "w").write(json.dumps(counted))
"""

    ROUNDS = soak.WARM_UP_ROUNDS + soak.JUDGED_ROUNDS_LEAST

    def soak(self, preloaded, **changed):
        """The whole of a soak with a stand-in for its program."""
        empty = {**self.DUMP["devices"][0], "regions": [{"address": "0x100000", "state": "hole", "pages": 2}],
                 **{f"{name}_bytes": 0 for name in soak.SUMS}, **{name: 0 for name in soak.COUNTS}, **changed}
        path = self.folder / "program"
        path.write_text(self.PROGRAM.format(
            python=sys.executable, dump=json.dumps({"devices": [empty]}), rounds=self.ROUNDS))
        path.chmod(0o755)
        shutil.copy(Path(__file__).parent / "dumper.py", self.folder)
        said = io.StringIO()
        with mock.patch.object(build, "binary", lambda _: path), contextlib.redirect_stdout(said), \
                mock.patch.object(soak.device, "used_mib", lambda: 5.0), \
                mock.patch.object(soak, "FOLDER", self.folder / "soak"):
            code = soak.soak(Path("libvpmm-stand-in.so"), 0.5, preloaded)
        return code, said.getvalue()

    def test_a_whole_soak(self):
        for preloaded in (True, False):
            code, said = self.soak(preloaded)
            self.assertEqual((code, said.splitlines()[-1]), (0, "passed"), said)
            self.assertEqual(len((self.folder / "soak" / "samples.csv").read_text().splitlines()), self.ROUNDS + 1)

    def test_a_whole_soak_that_keeps_memory(self):
        code, said = self.soak(True, held_bytes=soak.MIB)
        self.assertEqual((code, said.splitlines()[-1]), (1, "not passed"))
        self.assertIn("WRONG: held_mib is not 0 in 8 of 8 rounds", said)

    def test_the_soak_program_is_there(self):
        self.assertTrue(build.source_of(soak.PROGRAM).exists())


class Fidelity(unittest.TestCase):
    def test_every_truth_program_is_compared_bare_and_preloaded(self):
        names = (catalogue.TRUTHS / "names").read_text().split()
        self.assertEqual([p.name for p in catalogue.select(["fidelity"])], names)
        for p in catalogue.select(["fidelity"]):
            bare, preloaded = (launch.command_of(p, label, Path("lib.so"), Path(".")) for label in p.runs)
            self.assertEqual(bare[1:2], preloaded[1:2])
            for path in (bare[0], preloaded[0], bare[1]):
                self.assertTrue(Path(path).exists(), path)
            self.assertNotIn("LD_PRELOAD", set(launch.environment(p, PRELOADED, Path("lib.so"), Path("."))) -
                             set(os.environ))


if __name__ == "__main__":
    unittest.main()
