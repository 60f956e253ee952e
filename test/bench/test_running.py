# SPDX-License-Identifier: MIT
"""Tests of a whole session with stand-ins for programs and watcher, and of the table and the plots that its CSV becomes."""
import contextlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace

import made
import page
import plots
import records
import session
import works
from held import Unwatched
from records import GOOD, Record, Results, Session
from works import Work

CONTEXT_BYTES, IDLE_BYTES = 500, 1000
PRINTS = "import os, sys\nprint('pair,%d,ns' % (2 if 'LD_PRELOAD' in os.environ else 8))\nprint('live_peak,100,bytes')\n"
# Only the library would leave statistics.
LEAVES = ("import json\npath = os.environ.get('VPMM_STATS')\n"
          "if path: open(path.replace('%p', '1'), 'w').write(json.dumps({'requests': {'cudaMalloc': {'pool': 3, 'small': 1}}}))\n")
LOOKED_AT = "print('@held', flush=True)\ninput()\n"


class FakeWatch:
    """What an earlier program held is taken back at first; then comes the run of a bare context, then others."""

    def __init__(self):
        idle, context = (IDLE_BYTES, IDLE_BYTES), (IDLE_BYTES + CONTEXT_BYTES, IDLE_BYTES + CONTEXT_BYTES)
        self.answers = [(IDLE_BYTES + 9, IDLE_BYTES + 9), idle, idle, context, idle, idle]

    def ask(self):
        return self.answers.pop(0) if self.answers else (IDLE_BYTES, IDLE_BYTES + CONTEXT_BYTES + 110)

    def close(self):
        pass


class Blind:
    def __init__(self):
        raise Unwatched("no NVML")


class Running(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = Path(kept.name)
        self.path = self.folder / "results.csv"
        self.started = []
        self.said = []
        self.texts = {"good": PRINTS + LEAVES + LOOKED_AT, "bad": "import sys\nprint('why')\nsys.exit(3)", "silent": "",
                      "hangs": "import time\ntime.sleep(100)", "blank": PRINTS,
                      "idle": PRINTS + LEAVES.replace("3", "0")}

    def work(self, source, rivals=("async", "pool"), **more):
        return Work("part", source, source, rivals, **more)

    def command(self, work, rival):
        self.started.append((work.name, rival.name))
        return [sys.executable, "-c", self.texts[work.source]]

    def run_all(self, *selected, n_runs=2, part_limit_s=600.0, limit_s=600.0, watch=FakeWatch):
        self.started.clear()
        context = self.folder / "context"
        context.write_text("#!/bin/sh\necho @held; read answer\n")
        context.chmod(0o755)
        with replaced(session, "command", self.command), replaced(session, "Watch", watch), \
                replaced(made, "FOLDER", self.folder / "f"), replaced(made, "binary", lambda _: context):
            runner = session.Runner(Path("/nowhere.so"), self.path, Session("today"), self.said.append)
            runner.all(selected, n_runs, part_limit_s, limit_s)
        return runner.results

    def test_rivals_take_turns_and_figures_are_kept(self):
        found = self.run_all(self.work("good"))
        self.assertEqual(self.started, [("good", "async"), ("good", "pool")] * 2)
        self.assertEqual((found.values("part/good", "async", "pair"), found.values("part/good", "pool", "pair")),
                         ([8, 8], [2, 2]))
        self.assertEqual(found.median("part/good", "pool", "served"), 3)
        self.assertEqual(found.failures(), [])
        self.assertEqual(records.read([self.path])[0], [Session("today")])

    def test_held_is_less_idle_and_context(self):
        found = self.run_all(self.work("good", ("async",)), n_runs=1)
        self.assertEqual(found.median("context/context", "bare", "held_peak"), CONTEXT_BYTES)
        self.assertEqual(found.median("part/good", "async", "held_peak"), 110)
        self.assertEqual(found.median("part/good", "async", "held_ratio"), 1.1)

    def test_a_mark_of_another_name_has_a_figure_of_its_own(self):
        self.texts["rests"] = PRINTS + LEAVES + LOOKED_AT + LOOKED_AT.replace("held", "rest")
        found = self.run_all(self.work("rests", ("pool",)), n_runs=1)
        self.assertEqual(found.median("part/rests", "pool", "held_rest"), -CONTEXT_BYTES)
        self.assertIsNone(found.median("part/rests", "pool", "held_held"))
        self.assertEqual(found.median("part/rests", "pool", "driver_allocations"), 1)

    def test_without_a_watcher_the_rest_is_measured(self):
        found = self.run_all(self.work("good", ("async",)), n_runs=1, watch=Blind)
        self.assertEqual(found.median("part/good", "async", "pair"), 8)
        self.assertIsNone(found.median("part/good", "async", "held_peak"))
        self.assertIn("held cannot be seen: no NVML", self.said[0])

    def test_what_fails_is_told_and_the_rest_goes_on(self):
        found = self.run_all(self.work("bad", ("async",)), self.work("silent", ("async",)), self.work("blank", ("pool",)),
                             self.work("good", ("async",)), self.work("idle", ("pool",)),
                             Work("part", "small", "idle", ("pool",), is_served=False),
                             Work("part", "poolless", "blank", ("pool",), is_served=False),
                             self.work("good", needs="no_such_package"), n_runs=1)
        self.assertIn("part/bad, async, run 1: ends with 3: why", found.failures())
        self.assertIn("part/silent, async, run 1: printed no figures", found.failures())
        self.assertIn("part/blank, pool, run 1: the library left no statistics", found.failures())
        self.assertIn("part/idle, pool, run 1: the pool served nothing", found.failures())
        self.assertEqual(found.runs("part/small", "pool"), 1)
        self.assertEqual(found.runs("part/poolless", "pool"), 1)
        self.assertIn("part/good, pool, run 1: no_such_package is not installed", found.failures())

    def test_what_fails_twice_or_hangs_once_is_not_tried_again(self):
        self.run_all(self.work("bad", ("async",)), self.work("hangs", ("async",), limit_s=0.5), n_runs=4)
        self.assertEqual((self.started.count(("bad", "async")), self.started.count(("hangs", "async"))), (2, 1))

    def test_a_session_goes_on_where_it_stopped(self):
        self.run_all(self.work("good"), n_runs=1)
        found = self.run_all(self.work("good"), n_runs=2)
        self.assertEqual(self.started, [("good", "async"), ("good", "pool")])
        self.assertEqual(found.runs("part/good", "pool"), 2)

    def test_what_failed_is_tried_again_by_the_next_session(self):
        self.run_all(self.work("bad", ("async",)), n_runs=1)
        self.texts["bad"] = PRINTS
        found = self.run_all(self.work("bad", ("async",)), n_runs=1)
        self.assertEqual((found.failures(), found.runs("part/bad", "async")), ([], 1))

    def test_a_run_that_was_cut_short_by_its_part_is_no_failure(self):
        with replaced(session, "time", SimpleNamespace(monotonic=lambda: 0.0)):
            found = self.run_all(self.work("hangs", ("async",)), n_runs=1, part_limit_s=0.5)
        self.assertEqual((self.started, found.failures()), ([("hangs", "async")], []))
        self.assertIn("  part/hangs, async, run 1: no time was left for it", self.said)

    def test_no_run_begins_after_its_time(self):
        for limits in ({"part_limit_s": -1.0}, {"limit_s": -1.0}):
            self.run_all(self.work("good"), **limits)
            self.assertEqual(self.started, [])
            self.assertIn("part: the time is over in run 1", self.said)

    def test_a_work_may_have_fewer_runs(self):
        self.run_all(self.work("good", ("async",), runs_most=1), n_runs=3)
        self.assertEqual(len(self.started), 1)


def canned():
    """Results of works of the catalogue: the pool meets some bars and not others."""
    values = {"malloc": 100e3, "async0": 900.0, "async": 400.0, "page": 300.0, "page-malloc": 5e3, "pool": 100.0,
              "pool-malloc": 1e3}
    found = []
    for work in works.select(["pairs", "malloc", "growth/1 GiB", "growth/8 GiB", "traces/jax", "traces/train"]):
        for rival in work.rivals:
            rows = [(f"pair_t{n}", values[rival] * n, "ns") for n in (1, 2, 4, 8, 16)]
            rows += [(name, values[rival], "ns") for name in ("malloc", "cold_total", "second_total")]
            rows += [("held_peak", 3e9, "bytes"), ("held_ratio", 1.0 + values[rival] / 1e6, ""), ("rounding", 1.0, "")]
            found += [Record(work.full_name, rival, 1, GOOD, *row) for row in rows]
    return [*found, Record("streams/alternate two streams", "pool", 1, "ends with 1: | no")]


class Pages(unittest.TestCase):
    def setUp(self):
        self.results = Results(canned())

    def row(self, text, work, figure):
        cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines()
                 if line.startswith(f"| {work} | {figure} |")]
        self.assertEqual(len(cells), 1, (work, figure))
        return cells[0]

    def test_the_bars(self):
        text = page.markdown([Session("2026-01-02", "abc", "6.1", "580", "a GPU", "scripts/bench")], self.results, ["x"])
        self.assertEqual(self.row(text, "pairs/2 MiB", "pair_t1, pool"), [
            "pairs/2 MiB", "pair_t1, pool", "400 ns (async)", "100 ns", "0.250", "at most 1/4", "yes", "2.794 GiB"])
        self.assertEqual(self.row(text, "pairs/2 MiB", "pair_t16, pool")[4:7], ["0.250", "at most 1/150", "NO"])
        self.assertEqual(self.row(text, "malloc/4 MiB", "pair_t1, pool-malloc")[4:7], ["1/100.0", "at most 1/50", "yes"])
        self.assertEqual(self.row(text, "growth/32 GiB", "malloc, pool")[6], "not measured")
        self.assertEqual(self.row(text, "streams/alternate two streams", "pair, pool")[6], "failed")
        self.assertIn("- `scripts/bench`: a GPU, driver 580, kernel 6.1, commit abc, 2026-01-02\n", text)
        self.assertIn("![x](bench/x.svg)", text)
        self.assertIn("- streams/alternate two streams, pool, run 1: ends with 1: | no\n", text)

    def test_without_results_every_bar_is_there_and_none_is_met(self):
        text = page.markdown([], Results([]), [])
        for work in works.works():
            for bar in work.bars:
                self.assertEqual(self.row(text, work.full_name, f"{bar.figure}, {bar.rival}")[6], "not measured")
        self.assertNotIn("| yes |", text)
        self.assertIn("Nothing yet", text)

    def test_for_a_terminal(self):
        text = page.text(self.results, works.works())
        self.assertIn("FAILED: streams/alternate two streams, pool, run 1", text)
        self.assertRegex(text, r"\d+ bars met, \d+ not met, 1 without figures")


class Plots(unittest.TestCase):
    def draw(self, results):
        with tempfile.TemporaryDirectory() as folder:
            return {path.stem: path.read_text() for path in plots.draw(results, Path(folder))}

    def test_every_series_is_drawn_and_the_text_is_text(self):
        drawn = self.draw(Results(canned()))
        self.assertEqual(sorted(drawn), ["sizes", "threads", "traces"])
        for name in drawn:
            plot = plots.PLOTS[name]
            root = xml.etree.ElementTree.fromstring(drawn[name])
            ids = {element.get("id") for element in root.iter()}
            words = {"".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("}text")}
            panels = plot[0](Results(canned()))
            wanted = {f"{title}: {rival}" for title, rivals in panels.items() for rival in rivals}
            self.assertTrue(wanted)
            self.assertLessEqual(wanted, ids, name)
            self.assertLessEqual(set(panels), words, name)
            self.assertLessEqual({works.RIVALS[rival].text for rivals in panels.values() for rival in rivals}, words)

    def test_series_hold_the_medians(self):
        results = Results([*canned(), Record("pairs/2 MiB", "pool", 2, GOOD, "pair_t4", 800.0, "ns")])
        self.assertEqual(plots.thread_series(results)["pairs/2 MiB"]["pool"],
                         [(1, 0.1), (2, 0.2), (4, 0.6), (8, 0.8), (16, 1.6)])
        self.assertEqual(plots.trace_series(results)["traces/jax"]["malloc"], [(0.1, 1.1)])
        self.assertEqual(plots.size_series(results)["cold growth"]["async"], [(1024, 0.4), (8192, 0.4)])

    def test_passes_against_the_budget_of_weights(self):
        """Made-up rows: a model of 1,000 bytes, of which the link carries 10 in a ms."""
        work, vpmm = "weights/Llama of 1 GiB", "weights-vpmm"
        rows = [Record(work, rival, 1, GOOD, figure, value, "ns") for rival, figure, value in (
            ("weights-resident", "decode_resident", 8e6), ("weights-resident", "prefill_resident", 70e6),
            ("weights-accelerate", "decode_50", 400e6), (vpmm, "weights", 1000), (vpmm, "budget_floor", 100),
            (vpmm, "decode_floor", 95e6), (vpmm, "bound_floor", 90e6), (vpmm, "decode_50", 52e6),
            (vpmm, "bound_50", 50e6), (vpmm, "prefill_50", 71e6), (vpmm, "decode_all", 8.1e6), (vpmm, "decode_resident", 8.05e6))]
        panels = plots.weights_series(Results(rows))
        self.assertEqual(panels["Llama of 1 GiB, decode"], {
            "weights-resident": [(100, 8)], "weights-accelerate": [(50, 400)],
            vpmm: [(10, 95), (50, 52), (100, 8.1)], plots.BOUND: [(10, 90), (50, 50)]})
        self.assertEqual(panels["Llama of 1 GiB, prefill"][plots.BOUND], [(10, 90), (50, 70)])
        drawn = self.draw(Results(rows))
        self.assertEqual(list(drawn), ["weights"])
        self.assertIn(plots.BOUND, drawn["weights"])
        self.assertIn(f'id="Llama of 1 GiB, decode: {plots.BOUND}"', drawn["weights"])

    def test_the_same_results_give_the_same_bytes(self):
        one, other = self.draw(Results(canned())), self.draw(Results(canned()))
        self.assertEqual(one, other)
        for text in one.values():
            self.assertIsNone(re.search(r"<dc:date>|\b20\d\d-\d\d-\d\d|[ \t]\n", text))

    def test_nothing_measured_draws_nothing(self):
        self.assertEqual((self.draw(Results([])), plots.names(Results([]))), ({}, []))


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
