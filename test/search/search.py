# SPDX-License-Identifier: MIT
"""Looks for programs that see something else on a GPU under the library than bare, or bare than on the simulated
device. Random whole programs run in batches, one process a batch and way; a process that ends early is started again
behind the program that ended it."""
from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Dict, Iterator, List, Optional, Tuple

import batch
from batch import BARE, DRIVER_ENDS, PRELOADED, SIMULATED, Batch, Device, Sight
from side import SideBySide

SHRINK_SECONDS = 90
FAILURES_MAX = 8
PROGRESS_SECONDS = 30


class Campaign:
    """What was run and what was found. Several threads may use it."""

    def __init__(self, device: Device, folder: Path, seconds: float = math.inf) -> None:
        self.device = device
        self.folder = folder
        self.start = time.monotonic()
        self.end = self.start + seconds
        self.lock = threading.Lock()
        self.operations = 0
        self.programs = 0
        self.ended_bare: Counter[str] = Counter()
        self.last_words: List[str] = []
        self.explained: Counter[str] = Counter()
        self.failures: List[str] = []
        self.passing: Counter[Tuple[str, str]] = Counter()  # by the way and the end
        self.signal = 0
        self.next_progress = self.start + PROGRESS_SECONDS

    def n_failures(self) -> int:
        return sum(bool(failure) for failure in self.failures)

    def is_over(self) -> bool:
        return self.device.is_over(self.end) or self.n_failures() >= FAILURES_MAX

    def judge(self, tested: Batch, number: int, sights: Dict[str, Sight]) -> None:
        """Compares what one program saw in each way."""
        bare = sights[BARE]
        with self.lock:
            self.programs += 1
            self.operations += bare.n_made() * len(sights)
            if bare.end:
                # There is nothing to compare with. What another thread did meanwhile is a matter of chance.
                self.ended_bare[bare.end] += 1
                self.last_words.append(f"bare: program {number} of {tested.describe()}, {bare.end}: {bare.said}")
                return
        for way in (PRELOADED, SIMULATED):
            if way not in sights:
                continue
            differs = bare.differs(sights[way])
            with self.lock:
                if self.n_failures() >= FAILURES_MAX:
                    return
                if sights[way].is_explained():
                    self.explained[sights[way].end] += 1
                    continue
                if differs is None:
                    continue
                found = len(self.failures)
                self.failures.append(f"{BARE} and {way} differ, {differs}")
            self.report(tested, number, way, found, sights[way])

    def report(self, tested: Batch, number: int, way: str, found: int, sight: Sight) -> None:
        """Makes the failure short and prints it. After the end of the campaign that has its own time, once for all."""
        until = min(time.monotonic(), self.end) + SHRINK_SECONDS
        programs = self.find_alone(tested, number, way, until)
        if programs is not None:
            programs = shrink(self.device, tested, programs, way, until)
            what = self.device.differs(tested, programs, way, until)
            if what is not None:
                self.failures[found] = f"{BARE} and {way} differ, {what}"
            names = [self.folder / f"{way}-{number}-{i}" for i in range(len(programs))]
            for name, program in zip(names, programs):
                name.write_text(f"# {tested.describe()}, program {number}: {BARE} and {way} differ\n{program}")
            shown = "\n".join(programs)
            again = f"--replay {' '.join(str(name) for name in names)}"
        else:
            shown = self.device.program_text(tested, number)
            is_over = self.device.is_over(until)
            if sight.end in DRIVER_ENDS and not is_over:
                with self.lock:
                    self.failures[found] = ""
                    self.passing[way, sight.end] += 1
                    self.last_words.append(f"{way}: program {number} of {tested.describe()}, {sight.end}: {sight.said}")
                return
            why = "no time was left" if is_over else "it depends on the programs before it in the batch"
            again = f"1 --seed {tested.campaign_seed} (no shorter: {why})"
        with self.lock:
            print(f"\nsearch: FAILED: {tested.describe()}, program {number}: {self.failures[found]}\n\n{shown}\n"
                  f"search: again: scripts/gpu-search{self.device.flag()} {again}", flush=True)

    def find_alone(self, tested: Batch, number: int, way: str, until: float) -> Optional[List[str]]:
        """The program with as few of those before it as differ again; None: they do not, or the time is over."""
        first = number
        while not self.device.is_over(until):
            programs = [self.device.program_text(tested, n) for n in range(first, number + 1)]
            if self.device.differs(tested, programs, way, until):
                return programs
            if first == tested.first:
                return None
            first = max(tested.first, first - 1 - (number - first))
        return None

    def look(self) -> None:
        """Says now and then how far it is, and ends everything after a signal."""
        if self.signal and not self.device.is_stopped:
            self.device.stop()
        if time.monotonic() >= self.next_progress:
            self.next_progress += PROGRESS_SECONDS
            print(f"search: {time.monotonic() - self.start:.0f} s: {self.operations} operations in {self.programs} "
                  f"programs, {self.n_failures()} failures so far", file=sys.stderr, flush=True)

    def print_totals(self) -> None:
        seconds = max(time.monotonic() - self.start, 0.001)
        print(f"search: {self.operations} operations in {self.programs} programs, "
              f"{self.operations / seconds:.0f} operations a second, {self.n_failures()} failures")
        for (way, how), n in sorted(self.passing.items()):
            print(f"search: {n} programs did not end {way} ({how}), and ended when they were run again")
        for how, n in sorted(self.ended_bare.items()):
            print(f"search: {n} programs did not end bare ({how}), and were not compared")
        for words in self.last_words:
            print(f"search: {words}")
        for name, n in sorted(self.explained.items()):
            print(f"search: {n} programs part by the rule {name} of test/model/differences.c")
        for way, n in sorted(self.device.killed.items()):
            print(f"search: {n} processes did not end {way} and were killed")
        sys.stdout.flush()

    def status(self) -> int:
        if self.signal:
            return 128 + self.signal
        has_failed = (self.n_failures() or self.device.killed[PRELOADED] > self.device.killed[BARE] or
                      any(n > self.ended_bare[how] for (_, how), n in self.passing.items()))
        return 1 if has_failed or not self.programs else 0


def shrink(device: Device, tested: Batch, programs: List[str], way: str, until: float) -> List[str]:
    """Takes programs out, and steps out of the last one, as long as it differs; steps that are not valid then are not
    made."""
    for at in range(len(programs) - 2, -1, -1):
        fewer = programs[:at] + programs[at + 1:]
        if not device.is_over(until) and device.differs(tested, fewer, way, until):
            programs = fewer
    setting, *steps = programs[-1].splitlines()
    size = max(len(steps) // 2, 1)
    while size and not device.is_over(until):
        at = 0
        while at < len(steps) and not device.is_over(until):
            fewer = steps[:at] + steps[at + size:]
            if device.differs(tested, programs[:-1] + ["\n".join([setting] + fewer) + "\n"], way, until):
                steps = fewer
            else:
                at += size
        size //= 2
    return programs[:-1] + ["\n".join([setting] + steps) + "\n"]


def run_batch(campaign: Campaign, tested: Batch) -> None:
    # How much a device has to give is the device's own.
    ways = [BARE, PRELOADED] if tested.is_full else [BARE, PRELOADED, SIMULATED]
    seen: Dict[str, Dict[int, Sight]] = {}
    shown = tested
    for i, way in enumerate(ways):
        # The ways share the time that is left, so that each sees the same programs where it is short.
        now = time.monotonic()
        until = now + (campaign.end - now) / (len(ways) - i)
        known = seen[BARE] if tested.is_full and way == PRELOADED else None
        seen[way] = campaign.device.run(shown, way, until, known)
        shown = replace(tested, n_programs=len(seen[BARE]))
    for number in shown.numbers():
        sights = {way: seen[way][number] for way in seen if number in seen[way]}
        if len(sights) > 1:
            campaign.judge(tested, number, sights)


def replay(device: Device, paths: List[Path]) -> int:
    status = 0
    tested = Batch.of_file(paths[-1])
    programs = [path.read_text() for path in paths]
    for way in (PRELOADED, SIMULATED):
        what = device.differs(tested, programs, way)
        print(f"{BARE} and {way}: {what or 'no difference'}")
        status = 1 if what else status
    return status


def jobs_by_default(is_simulated: bool) -> int:
    """One on a GPU: its driver makes and ends contexts one after the other, about a second each with many queues."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2)) if is_simulated else 1


def batches_of(campaign: Campaign, options: argparse.Namespace, seed: int) -> Iterator[Batch]:
    """The same for a seed, as far as the time lasts."""
    dice = random.Random(seed)
    for n_batches in itertools.count():
        if n_batches == options.batches or campaign.is_over():
            return
        yield Batch.draw(dice, seed, options.programs, options.captures or options.sim, options.small)


def options_of(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-search", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, help="how long to look")
    parser.add_argument("--seed", type=int, help="repeats the campaign of that seed")
    parser.add_argument("--sim", action="store_true", help="the simulated device in the place of the GPU")
    parser.add_argument("--batches", type=int, help="stops after so many batches")
    parser.add_argument("--programs", type=int, default=100, help="programs in a batch (default 100)")
    parser.add_argument("--jobs", type=int,
                        help="batches side by side (default: 1; half the processors, at most 8, with --sim)")
    parser.add_argument("--captures", action="store_true",
                        help="captures on a GPU, too; driver 580 crashes in cuGraphInstantiateWithFlags for some")
    parser.add_argument("--small", action="store_true",
                        help="small requests in every batch, all of them served (otherwise in seven of ten)")
    parser.add_argument("--build", type=Path, help="a build folder that is up to date, instead of build-search-gpu")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE",
                        help="runs the programs of files, one after the other, and compares the last")
    options = parser.parse_args(arguments)
    if options.replay is None and options.minutes is None:
        parser.error("MINUTES is missing")
    if options.jobs is None:
        options.jobs = jobs_by_default(options.sim)
    if options.jobs < 1:
        parser.error("--jobs: at least 1")
    return options


def main(arguments: List[str]) -> int:
    options = options_of(arguments)
    try:
        device = Device(batch.built(options.build), options.sim)
    except batch.BuildError as error:
        print(f"gpu-search: {error}", file=sys.stderr)
        return 2
    if options.replay is not None:
        return replay(device, options.replay)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    campaign = Campaign(device, device.folder, options.minutes * 60)

    def note(number: int, _frame: Optional[FrameType]) -> None:
        campaign.signal = number

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    flags = device.flag() + " --small" * options.small
    print(f"seed {seed}: scripts/gpu-search {options.minutes:g} --seed {seed}{flags}", flush=True)
    side = SideBySide(options.jobs, lambda tested: run_batch(campaign, tested), device.needs_all, campaign.look)
    try:
        side.run(batches_of(campaign, options, seed))
    except batch.BuildError as error:
        print(f"gpu-search: {error}", file=sys.stderr)
        return 2
    finally:
        device.stop()
        campaign.print_totals()
    return campaign.status()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
