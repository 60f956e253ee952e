# SPDX-License-Identifier: MIT
"""The search for differences on a GPU, with the simulated device in its place: programs that behave see the same in all
three ways, and one that does not is found, made short and replayed. Usage: test_search.py BUILD_FOLDER"""
from __future__ import annotations

import contextlib
import io
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Sequence, Tuple
from unittest import mock

import search
from batch import BARE, PRELOADED, SIMULATED, Batch, Device, Ended, Sight, sight_of
from side import SideBySide

BUILD = Path(sys.argv.pop())
# Longer than any of these tests may take on a busy machine.
PATIENCE_SECONDS = 100
# So long a batch waits for another to begin beside it.
CHANCE_SECONDS = 0.2

SECOND_THREAD_CRASHES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
typedef int starts(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
starts pthread_create;
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static int n_calls;
    if (++n_calls == 2)
        *(volatile int *)0 = 0;
    return ((starts *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, argument);
}
"""


class Faulty(Device):
    """Preloaded, one allocation of each process is refused."""

    def environment(self, tested: Batch, way: str) -> Dict[str, str]:
        environment = super().environment(tested, way)
        if way == PRELOADED:
            del environment["LD_PRELOAD"]
            environment["VPMM_SIM_FAULT"] = "cuMemAllocAsync:3:2"
        return environment


class Crashing(Device):
    """Preloaded, the start of a second thread crashes, in an object of that name."""

    name = "libfault.so"

    def environment(self, tested: Batch, way: str) -> Dict[str, str]:
        environment = super().environment(tested, way)
        if way == PRELOADED:
            library = self.folder / self.name
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True, text=True,
                           input=SECOND_THREAD_CRASHES)
            environment["LD_PRELOAD"] = str(library)
        return environment


class CrashingDriver(Crashing):
    name = "libcuda.fault.so"


class Counting(Device):
    """Counts the processes of each way."""

    def __init__(self, build: Path, is_simulated: bool) -> None:
        super().__init__(build, is_simulated)
        self.started: List[str] = []

    def start(self, tested: Batch, way: str, arguments: Sequence[str], until: float, bare: str = "") -> Ended:
        self.started.append(way)
        return super().start(tested, way, arguments, until, bare)


def batch(n_programs: int, is_full: bool = False) -> Batch:
    return Batch(first=100, n_programs=n_programs, campaign_seed=1, steps=80, is_full=is_full)


def command_of(*arguments: str) -> List[str]:
    return [sys.executable, "-B", search.__file__, "--sim", "--build", str(BUILD), *arguments]


def totals_of(text: str) -> Tuple[int, int]:
    """The operations and programs of the line of totals."""
    found = re.search("^search: ([0-9]+) operations in ([0-9]+) programs, [0-9]+ operations a second, "
                      "[0-9]+ failures$", text, re.MULTILINE)
    assert found, text
    return int(found[1]), int(found[2])


class TestSearch(unittest.TestCase):
    def campaign(self, device: Device, n_programs: int) -> search.Campaign:
        folder = Path(tempfile.mkdtemp())
        campaign = search.Campaign(device, folder)
        search.run_batch(campaign, batch(n_programs))
        return campaign

    def test_all_ways_see_the_same(self) -> None:
        campaign = self.campaign(Device(BUILD, True), 12)
        self.assertEqual(campaign.failures, [])
        self.assertEqual(campaign.programs, 12)
        self.assertEqual(campaign.ended_bare, {})
        self.assertGreater(campaign.operations, 12 * 3 * 60)

    def test_small_requests_are_served_and_seen_the_same(self) -> None:
        campaign = search.Campaign(Device(BUILD, True), Path(tempfile.mkdtemp()))
        search.run_batch(campaign, replace(batch(12), serves_small=True))
        self.assertEqual(campaign.failures, [])
        self.assertEqual(campaign.programs, 12)
        text = campaign.device.program_text(replace(batch(1), serves_small=True), 100)
        self.assertIn(" small", text.splitlines()[0])
        self.assertNotIn(" small", campaign.device.program_text(batch(1), 100).splitlines()[0])

    def test_what_does_not_end_bare_is_counted_and_not_compared(self) -> None:
        campaign = search.Campaign(Device(BUILD, True), Path(tempfile.mkdtemp()))
        campaign.judge(batch(1), 100, {BARE: Sight(["0"], "HANG"), PRELOADED: Sight(["0", "2"])})
        self.assertEqual(campaign.failures, [])
        self.assertEqual(campaign.ended_bare, {"HANG": 1})

    def test_a_stall_is_no_failure_where_bare_stalls_as_often(self) -> None:
        campaign = search.Campaign(Device(BUILD, True), Path(tempfile.mkdtemp()))
        campaign.judge(batch(1), 100, {BARE: Sight(["0"]), PRELOADED: Sight(["0"], "HANG")})
        self.assertEqual(campaign.n_failures(), 0)
        self.assertEqual(campaign.status(), 1)
        campaign.judge(batch(1), 101, {BARE: Sight(["0"], "HANG"), PRELOADED: Sight(["0"])})
        self.assertEqual(campaign.status(), 0)

    def test_a_crash_tells_its_step_and_whose_it_is(self) -> None:
        for device, end in (Crashing(BUILD, True), "CRASH"), (CrashingDriver(BUILD, True), "DRIVER-CRASH"):
            sight = next(sight for sight in device.run(batch(12), PRELOADED).values() if sight.end)
            self.assertEqual(sight.end, end)
            self.assertRegex(sight.said, r"step [0-9]+ \(" + end + r"\): [a-z-]+, at.* " + device.name + r"\+0x")

    def test_a_crash_of_the_driver_is_no_failure_where_bare_crashes_as_often(self) -> None:
        campaign = search.Campaign(Device(BUILD, True), Path(tempfile.mkdtemp()))
        campaign.judge(batch(1), 100, {BARE: Sight(["0"]), PRELOADED: Sight(["0"], "DRIVER-CRASH", "why")})
        self.assertEqual(campaign.status(), 1)
        self.assertIn("why", campaign.last_words[0])
        campaign.judge(batch(1), 101, {BARE: Sight(["0"], "HANG"), PRELOADED: Sight(["0"])})
        self.assertEqual(campaign.status(), 1)
        campaign.judge(batch(1), 102, {BARE: Sight(["0"], "DRIVER-CRASH"), PRELOADED: Sight(["0"])})
        self.assertEqual(campaign.status(), 0)

    def test_any_other_crash_is_a_failure(self) -> None:
        campaign = search.Campaign(Device(BUILD, True), Path(tempfile.mkdtemp()))
        campaign.judge(batch(1), 100, {BARE: Sight(["0"]), PRELOADED: Sight(["0"], "CRASH")})
        self.assertEqual(campaign.n_failures(), 1)

    def test_programs_capture_only_where_they_may(self) -> None:
        texts = {captures: "".join(Device(BUILD, True).program_text(replace(batch(1), captures=captures), number)
                                   for number in range(40)) for captures in (False, True)}
        self.assertNotIn("capture-begin", texts[False])
        self.assertIn("capture-begin", texts[True])

    def test_a_difference_is_found_and_made_short(self) -> None:
        campaign = self.campaign(Faulty(BUILD, True), 1)
        self.assertEqual(len(campaign.failures), 1, campaign.failures)
        self.assertRegex(campaign.failures[0], "^bare and preloaded differ, at step [0-9]+: 0 and 2$")
        program, = campaign.folder.iterdir()
        steps = [line for line in program.read_text().splitlines() if not line.startswith(("#", "setting "))]
        self.assertEqual([step.split()[0] for step in steps].count("malloc-async"), 3)
        self.assertLessEqual(len(steps), 6, steps)
        self.assertEqual(search.replay(Faulty(BUILD, True), [program]), 1)
        self.assertEqual(search.replay(Device(BUILD, True), [program]), 0)


class TestTime(unittest.TestCase):
    def test_time_that_is_used_up_starts_nothing(self) -> None:
        device = Counting(BUILD, True)
        campaign = search.Campaign(device, device.folder, 0)
        search.run_batch(campaign, batch(3))
        self.assertEqual(device.started, [])
        done = subprocess.run(command_of("0"), stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_SECONDS)
        self.assertEqual(totals_of(done.stdout), (0, 0))
        self.assertEqual(done.returncode, 1)

    def test_time_that_ends_within_a_batch(self) -> None:
        for is_full in (False, True):
            with self.subTest(is_full=is_full):
                device = Counting(BUILD, True)
                campaign = search.Campaign(device, device.folder, 3)
                # The first thousand of these hang in no way.
                search.run_batch(campaign, replace(batch(1000000, is_full), first=1000))
                self.assertEqual(campaign.failures, [])
                self.assertEqual(device.killed, {})
                self.assertGreater(campaign.programs, 0)
                # A program that parts by a rule ends its process.
                self.assertEqual(device.started.count(BARE), 1, device.started)

    def test_no_way_runs_what_was_not_seen_bare(self) -> None:
        device = Device(BUILD, True)
        seen = {100: Sight(["0"]), 101: Sight(["0"])}
        with mock.patch.object(device, "run", return_value=seen) as run:
            search.run_batch(search.Campaign(device, device.folder), batch(5))
        self.assertEqual([call.args[0].n_programs for call in run.call_args_list], [5, 2, 2])

    def test_a_process_that_does_not_end_is_killed(self) -> None:
        device = Device(BUILD, True)
        device.program = Path(tempfile.mkdtemp()) / "stuck"
        device.program.write_text("#!/bin/sh\nexec sleep 60\n")
        device.program.chmod(0o755)
        with mock.patch("batch.LIMIT_SECONDS", 0), mock.patch("batch.EXIT_SECONDS", 0):
            self.assertEqual(device.run(batch(1), BARE, time.monotonic() + 0.2), {})
        self.assertEqual(device.killed, {BARE: 1})

    def test_a_failure_is_told_without_time_to_make_it_short(self) -> None:
        device = Faulty(BUILD, True)
        campaign = search.Campaign(device, Path(tempfile.mkdtemp()))
        said = io.StringIO()
        with mock.patch("search.SHRINK_SECONDS", 0), contextlib.redirect_stdout(said):
            search.run_batch(campaign, batch(1))
        self.assertEqual(len(campaign.failures), 1, campaign.failures)
        self.assertIn("(no shorter: no time was left)", said.getvalue())

    def test_a_signal_ends_the_campaign_with_totals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                process = subprocess.Popen(command_of("6", "--jobs", "2", "--programs", "1000000"),
                                           stdout=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                assert process.stdout
                process.stdout.readline()
                process.send_signal(number)
                totals_of(process.communicate(timeout=PATIENCE_SECONDS)[0])
                self.assertEqual(process.returncode, 128 + number)


class TestJobs(unittest.TestCase):
    def test_jobs_change_no_figures(self) -> None:
        seen = {}
        for n_jobs in ("1", "3"):
            done = subprocess.run(command_of("10", "--seed", "31", "--jobs", n_jobs, "--batches", "6", "--programs", "2"),
                                  stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_SECONDS)
            self.assertEqual(done.returncode, 0, done.stdout)
            seen[n_jobs] = totals_of(done.stdout)
        self.assertEqual(seen["1"], seen["3"])
        self.assertEqual(seen["1"][1], 12)

    def test_batches_run_side_by_side(self) -> None:
        meet = threading.Barrier(3)

        def work(_tested: Batch) -> None:
            meet.wait(PATIENCE_SECONDS)

        SideBySide(3, work, lambda tested: False, lambda: None).run([batch(1) for i in range(3)])
        self.assertFalse(meet.broken)

    def test_a_batch_that_needs_all_of_the_device_runs_alone(self) -> None:
        # Each batch gives the others the chance to run beside it.
        for n_jobs in (1, 2, 3, 8):
            with self.subTest(n_jobs=n_jobs):
                batches = [replace(batch(1, is_full=i in (1, 4, 5)), first=i) for i in range(7)]
                begun, beside_full = self.begun_of(n_jobs, batches)
                self.assertEqual(beside_full, [])
                self.assertEqual(sorted(begun), list(range(7)))
                if n_jobs == 1:
                    self.assertEqual(begun, list(range(7)))

    def begun_of(self, n_jobs: int, batches: List[Batch]) -> Tuple[List[int], List[List[int]]]:
        """The batches as they began, and those that ran at one time, where one of them was full."""
        changed = threading.Condition()
        running: List[Batch] = []
        begun: List[int] = []
        beside_full: List[List[int]] = []

        def work(tested: Batch) -> None:
            with changed:
                running.append(tested)
                begun.append(tested.first)
                if len(running) > 1 and any(other.is_full for other in running):
                    beside_full.append([other.first for other in running])
                n_begun = len(begun)
                changed.notify_all()
                changed.wait_for(lambda: len(begun) > n_begun, timeout=CHANCE_SECONDS)
                running.remove(tested)

        SideBySide(n_jobs, work, Device(BUILD, False).needs_all, lambda: None).run(batches)
        return begun, beside_full


class TestSight(unittest.TestCase):
    def parts(self, one: str, other: str) -> str:
        return sight_of(one).differs(sight_of(other)) or ""

    def test_answers(self) -> None:
        self.assertEqual(self.parts("7 3 0 0 0", "7 3 0 0 0"), "")
        self.assertEqual(self.parts("7 3 0 600 0", "7 3 0 0 0"), "at step 2: 600 and 0")
        self.assertEqual(self.parts("7 3 0 0/1 0", "7 3 0 0/3 0"), "at step 2: 0/1 and 0/3")

    def test_a_program_that_hangs_in_one_way(self) -> None:
        self.assertEqual(self.parts("7 3 0 0 0", "7 1 HANG 0 -1"), "at step 2: it goes on and HANG")
        self.assertEqual(self.parts("7 1 HANG 0 -1", "7 1 HANG 0 -1"), "")

    def test_steps_that_were_not_made(self) -> None:
        self.assertEqual(Sight(["0", "-1", "0/5"]).n_made(), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
