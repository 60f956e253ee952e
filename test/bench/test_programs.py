# SPDX-License-Identifier: MIT
"""The programs of the driver API on the simulated device: they make the calls whose price they print, each figure is of its
own call, and every figure reaches the results and the page. Usage: test_programs.py FOLDER_OF_THE_PROGRAMS LIBRARY"""
from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple
from unittest import mock

import made
import page
import records
import session
import works
from records import Results, Session
from works import MIB, RIVALS, Rival, Work

LIBRARY, PROGRAMS = Path(sys.argv.pop()).resolve(), Path(sys.argv.pop()).resolve()
# The host runs ahead of the device, and CUDA's pool gives out what a stream comes after.
SIMULATED = {"VPMM_SIM_EAGER": "0", "VPMM_SIM_REUSE": "1", "VPMM_SIM_DATA": "0"}
ANY_ERROR = 999
N_PROBED = 12 * 1000  # calls of each kind that `events` times, the first block included
BLOCK_BYTES = 64 * MIB


def quantiles(*names: str) -> Dict[str, str]:
    return {f"{name}_{share}": "ns" for name in names for share in ("p50", "p99")}


PROBES = ("record", "wait", "event_query", "stream_query", "stream_sync")
CROWDS = ("handover_s10_e100", "handover_s10_e10000", "handover_s1000_e10000")
FIGURES: Dict[str, Dict[str, str]] = {
    "ring": {**dict.fromkeys(("host_round", "round", "pair"), "ns"), **quantiles("pair", "malloc", "free"),
             "live_peak": "bytes", "reserved_high": "bytes"},
    "events": {f"{probe}_{which}": "ns" for probe in PROBES for which in ("best", "median")},
    "handovers": {**dict.fromkeys(CROWDS, "ns"), **quantiles(*CROWDS)},
}
# The number that a program is to do something, in the place of that for a GPU.
SHORT = {"ring": "60", "handovers": "100"}


def order_works() -> List[Work]:
    return [replace(work, arguments=(SHORT.get(work.source, work.arguments[0]), *work.arguments[1:]))
            for work in works.select(["ring", "events", "handovers"])]


def started(source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("VPMM_", "LD_PRELOAD"))}
    return subprocess.run([str(PROGRAMS / source), "async", *arguments], env={**env, **SIMULATED, **environment}, input="\n",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)


class Programs(unittest.TestCase):
    def figures(self, source: str, *arguments: str, **environment: str) -> Dict[str, float]:
        start_ns = time.monotonic_ns()
        done = started(source, *arguments, **environment)
        whole_ns = time.monotonic_ns() - start_ns
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        found = session.printed(done.stdout)
        self.assertLess(max(value for value, unit in found.values() if unit == "ns"), whole_ns)
        return {name: value for name, (value, _) in found.items()}

    def makes(self, n_calls: int, call: str, source: str, *arguments: str) -> None:
        """The last call of so many is the last one that can fail."""
        for number, fails in ((n_calls, True), (n_calls + 1, False)):
            done = started(source, *arguments, VPMM_SIM_FAULT=f"{call}:{number}:{ANY_ERROR}")
            self.assertEqual(done.returncode != 0, fails, f"{source} {arguments}, {call} {number}: {done.stderr}")

    def slowed(self, call: str, ns: float, source: str, *arguments: str) -> Set[str]:
        """The figures that show how slow that call is."""
        found = self.figures(source, *arguments, BENCH_SLOW=call, BENCH_SLOW_NS=f"{ns:.0f}")
        return {name for name, value in found.items() if value >= ns and FIGURES[source].get(name) == "ns"}

    def test_every_work_prints_its_figures_and_no_others(self) -> None:
        for work in order_works():
            with self.subTest(work.full_name):
                done = started(work.source, *work.arguments, VPMM_SIM_RACES="1", VPMM_SIM_STRICT="2")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                found = session.printed(done.stdout)
                self.assertEqual({name: unit for name, (_, unit) in found.items()}, FIGURES[work.source])
                self.assertTrue(all(value > 0 for value, _ in found.values()), found)
                for bar in work.bars:
                    self.assertIn(bar.figure, {*found, session.HELD})

    def test_figures_of_one_sample_are_in_order(self) -> None:
        for work in order_works():
            found = self.figures(work.source, *work.arguments)
            for low, high in (("_p50", "_p99"), ("_best", "_median")):
                for name in found:
                    if name.endswith(low):
                        self.assertLessEqual(found[name], found[name.removesuffix(low) + high], work.full_name)
            if work.source == "ring":
                self.assertLessEqual(found["pair"], found["host_round"])
                self.assertLessEqual(found["host_round"], found["round"])

    def test_the_ring_makes_every_round(self) -> None:
        both = 2 * (20 + 1)
        for call, n_calls in (("cuMemAllocAsync", both // 2), ("cuMemFreeAsync", both // 2), ("cuLaunchKernel", both),
                              ("cuEventRecord", both), ("cuStreamWaitEvent", both)):
            self.makes(n_calls, call, "ring", "20", "64", "64")
        self.makes(both // 2, "cuStreamWaitEvent", "ring", "20", "64", "64", "without-back")

    def test_the_ring_times_the_allocation_and_the_free(self) -> None:
        ns, of_pair = 2e6, {"pair", "pair_p50", "pair_p99"}
        whole = {"host_round", "round"}
        for call, wanted in (("cuMemAllocAsync", {*of_pair, "malloc_p50", "malloc_p99"}),
                             ("cuMemFreeAsync", {*of_pair, "free_p50", "free_p99"}),
                             ("cuEventRecord", set()), ("cuStreamWaitEvent", set()), ("cuLaunchKernel", set())):
            found = self.slowed(call, ns, "ring", "20", "64", "64")
            # Another process may have been in the way of a few rounds.
            loud = {name for name in found - wanted if name == "pair" or name.endswith("_p99")}
            self.assertEqual(found - loud, {*wanted, *whole}, call)

    def test_only_without_the_event_back_more_is_held(self) -> None:
        for preload in ("", str(LIBRARY)):
            with self.subTest(preload):
                ring = self.figures("ring", "60", "64", "64", LD_PRELOAD=preload)
                self.assertEqual((ring["live_peak"], ring["reserved_high"]), (BLOCK_BYTES, BLOCK_BYTES))
                ring = self.figures("ring", "60", "64", "64", "blocking", LD_PRELOAD=preload)
                self.assertEqual(ring["reserved_high"], BLOCK_BYTES)
                open_ring = self.figures("ring", "60", "64", "64", "without-back", LD_PRELOAD=preload)
                self.assertGreater(open_ring["reserved_high"], 4 * BLOCK_BYTES)

    def test_every_size_comes_in_turn(self) -> None:
        # Nothing is reused, but for the block of the round that is waited for before the first one.
        found = self.figures("ring", "97", "16", "112", "without-back", VPMM_SIM_GRANULARITY="1M")
        self.assertEqual(found["live_peak"], 112 * MIB)
        self.assertAlmostEqual(found["reserved_high"] / MIB, sum(range(16, 113)), delta=1)

    def test_events_makes_a_thousand_calls_a_block(self) -> None:
        for n_frees in (0, 100):
            n_set = 5 * 12
            arguments = ("events", str(n_frees))
            for call, n_calls in (("cuEventRecord", N_PROBED + n_set), ("cuStreamWaitEvent", N_PROBED),
                                  ("cuEventQuery", N_PROBED), ("cuStreamSynchronize", N_PROBED),
                                  ("cuStreamQuery", N_PROBED + (n_set if n_frees else 0)),
                                  ("cuMemFreeAsync", 1 + n_frees * n_set)):
                self.makes(n_calls, call, *arguments)

    def test_each_figure_of_events_is_of_its_own_call(self) -> None:
        calls = dict(zip(PROBES, ("cuEventRecord", "cuStreamWaitEvent", "cuEventQuery", "cuStreamQuery",
                                  "cuStreamSynchronize")))
        for n_frees in ("0", "100"):
            for probe, call in calls.items():
                found = self.slowed(call, 30e3, "events", n_frees)
                self.assertEqual({name for name in found if name.endswith("_best")}, {f"{probe}_best"})
                self.assertIn(f"{probe}_median", found)

    def test_pending_frees_that_do_not_wait_are_told(self) -> None:
        done = started("events", "100", VPMM_SIM_FAULT=f"cuStreamQuery:1:{ANY_ERROR}")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("the frees did not wait", done.stderr)

    def test_handovers_times_all_four_calls(self) -> None:
        for call in ("cuMemAllocAsync", "cuMemFreeAsync", "cuEventRecord", "cuStreamWaitEvent"):
            self.makes(2 * 2 * 30, call, "handovers", "30", "10", "100", "40", "7")
            found = self.slowed(call, 2e6, "handovers", "10", "10", "100")
            self.assertEqual(found, {"handover_s10_e100", *quantiles("handover_s10_e100")}, call)
        self.makes(40 + 10, "cuStreamCreate", "handovers", "1", "10", "100", "40", "7")
        self.makes(100 + 7, "cuEventCreate", "handovers", "1", "10", "100", "40", "7")

    def test_wrong_arguments_are_told(self) -> None:
        for words in (("ring",), ("ring", "0", "64", "64"), ("ring", "9", "64", "63"), ("ring", "9", "64", "64", "forward"),
                      ("events",), ("events", "-1"), ("events", "many"), ("handovers", "9"), ("handovers", "9", "1", "9")):
            done = started(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertEqual(done.stderr.count("\n"), 1, words)


class Watch:
    """Of a device on which every program holds as much."""

    def ask(self) -> Tuple[int, int]:
        return 1000, 1000 + BLOCK_BYTES

    def close(self) -> None:
        pass


def command(work: Work, rival: Rival) -> List[str]:
    """Tells, as one more figure, whether the rival's option arrived."""
    script = 'echo "waits,${VPMM_STREAM_WAITS:-0},"; exec env "$@"'
    given = [f"{key}={value}" for key, value in SIMULATED.items()]
    return ["sh", "-c", script, "sh", *given, str(PROGRAMS / work.source), rival.api, *work.arguments]


class Sessions(unittest.TestCase):
    """A session of the runner with these programs, as on a GPU."""

    selected = order_works()
    folder: tempfile.TemporaryDirectory
    results: Results

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        folder = Path(cls.folder.name)
        context = folder / "context"
        context.write_text("#!/bin/sh\necho @held; read answer\n")
        context.chmod(0o755)
        path = folder / "results.csv"
        with contextlib.ExitStack() as stack:
            for owner, name, value in ((session, "command", command), (session, "Watch", Watch),
                                       (made, "FOLDER", folder / "f"), (made, "binary", lambda _: context)):
                stack.enter_context(mock.patch.object(owner, name, value))
            runner = session.Runner(LIBRARY, path, Session("today"), lambda _: None)
            runner.all(cls.selected, 1, 600.0, 600.0)
        cls.results = Results(records.read([path])[1])

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def rows(self) -> Iterator[Tuple[Work, str]]:
        for work in self.selected:
            for rival in work.rivals:
                yield work, rival

    def test_every_figure_of_every_rival_is_kept(self) -> None:
        self.assertEqual(self.results.failures(), [])
        for work, rival in self.rows():
            kept = {name for name in self.results.figures(work.full_name)
                    if self.results.values(work.full_name, rival, name)}
            own = {"waits", "seconds", session.HELD, *({"held_ratio"} if work.source == "ring" else ())}
            served = {"served", "passed", "driver_allocations"} if RIVALS[rival].preloaded else set()
            self.assertEqual(kept, {*FIGURES[work.source], *own, *served}, f"{work.full_name}, {rival}")
            for name, unit in FIGURES[work.source].items():
                self.assertEqual(self.results.unit(work.full_name, name), unit)

    def test_the_library_serves_the_preloaded_rivals(self) -> None:
        for work, rival in self.rows():
            if RIVALS[rival].preloaded:
                self.assertGreater(self.results.median(work.full_name, rival, "served") or 0, 0, work.full_name)

    def test_only_the_rival_that_may_wait_is_told_so(self) -> None:
        told = {rival: self.results.median(work.full_name, rival, "waits") for work, rival in self.rows()}
        self.assertEqual(told, {"async": 0, "pool": 0, "pool-waits": 1})

    def test_the_page_shows_every_figure_and_judges_every_bar(self) -> None:
        lines = page.markdown([], self.results, []).splitlines()
        for work in self.selected:
            section = lines[lines.index(f"### {work.full_name}") + 2:]
            table = [[cell.strip() for cell in line[1:-1].split("|")] for line in takewhile(bool, section)]
            self.assertEqual(table[0], ["rival", *work.rivals])
            shown = {row[0]: row[1:] for row in table}
            for name, unit in FIGURES[work.source].items():
                medians = [self.results.median(work.full_name, rival, name) for rival in work.rivals]
                self.assertNotIn(None, medians)
                self.assertEqual(shown[name], [page.quantity(median, unit) for median in medians], work.full_name)
            for bar in work.bars:
                row, = (line for line in lines if line.startswith(f"| {work.full_name} | {bar.figure}, {bar.rival} |"))
                self.assertRegex(row, r"\| (yes|NO) \|")


if __name__ == "__main__":
    unittest.main(verbosity=2)
