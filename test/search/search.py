# SPDX-License-Identifier: MIT
"""Looks for programs that see something else on a GPU under the library than bare, or bare than on the simulated
device. Random whole programs run in batches, one process a batch and way; a process that ends early is started again
behind the program that ended it."""
from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Dict, List, Optional

import batch
from batch import BARE, PRELOADED, SIMULATED, Batch, Device, Sight

SHRINK_SECONDS = 90
FAILURES_MAX = 8


class Campaign:
    """What was run and what was found."""

    def __init__(self, device: Device, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self.operations = 0
        self.programs = 0
        self.hung_bare = 0
        self.explained: Counter[str] = Counter()
        self.failures: List[str] = []

    def judge(self, tested: Batch, number: int, sights: Dict[str, Sight]) -> None:
        """Compares what one program saw in each way."""
        bare = sights[BARE]
        self.programs += 1
        self.operations += bare.n_made() * len(sights)
        if bare.end:
            # Without a bare run to its end there is nothing to compare with; the simulated device should end alike.
            self.hung_bare += 1
        for way in (PRELOADED, SIMULATED):
            if way not in sights or len(self.failures) >= FAILURES_MAX:
                continue
            differs = bare.differs(sights[way])
            if sights[way].is_explained():
                self.explained[sights[way].end] += 1
            elif differs is not None:
                self.report(tested, number, way, differs)

    def report(self, tested: Batch, number: int, way: str, what: str) -> None:
        found = self.find_alone(tested, number, way)
        if found is not None:
            programs = shrink(self.device, tested, found, way, time.monotonic() + SHRINK_SECONDS)
            what = self.device.differs(tested, programs, way) or what
            names = [self.folder / f"{way}-{number}-{i}" for i in range(len(programs))]
            for name, program in zip(names, programs):
                name.write_text(f"# {tested.describe()}, program {number}: {BARE} and {way} differ\n{program}")
            shown = "\n".join(programs)
            again = f"--replay {' '.join(str(name) for name in names)}"
        else:
            shown = self.device.program_text(tested, number)
            again = f"1 --seed {tested.campaign_seed} (no shorter: it depends on the programs before it in the batch)"
        self.failures.append(f"{BARE} and {way} differ, {what}")
        print(f"\nsearch: FAILED: {tested.describe()}, program {number}: {self.failures[-1]}\n\n{shown}\n"
              f"search: again: scripts/gpu-search{self.device.flag()} {again}", flush=True)

    def find_alone(self, tested: Batch, number: int, way: str) -> Optional[List[str]]:
        """The program with as few of those before it as differ again; None: they do not."""
        first = number
        while True:
            programs = [self.device.program_text(tested, n) for n in range(first, number + 1)]
            if self.device.differs(tested, programs, way):
                return programs
            if first == tested.first:
                return None
            first = max(tested.first, first - 1 - (number - first))


def shrink(device: Device, tested: Batch, programs: List[str], way: str, until: float) -> List[str]:
    """Takes programs out, and steps out of the last one, as long as it differs; steps that are not valid then are not
    made."""
    for at in range(len(programs) - 2, -1, -1):
        fewer = programs[:at] + programs[at + 1:]
        if time.monotonic() < until and device.differs(tested, fewer, way):
            programs = fewer
    setting, *steps = programs[-1].splitlines()
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < until:
        at = 0
        while at < len(steps) and time.monotonic() < until:
            fewer = steps[:at] + steps[at + size:]
            if device.differs(tested, programs[:-1] + ["\n".join([setting] + fewer) + "\n"], way):
                steps = fewer
            else:
                at += size
        size //= 2
    return programs[:-1] + ["\n".join([setting] + steps) + "\n"]


def run_batch(campaign: Campaign, tested: Batch) -> None:
    bare = campaign.device.run(tested, BARE)
    seen = {BARE: bare, PRELOADED: campaign.device.run(tested, PRELOADED, bare if tested.is_full else None)}
    # How much a device has to give is the device's own.
    if not tested.is_full:
        seen[SIMULATED] = campaign.device.run(tested, SIMULATED)
    for number in tested.numbers():
        sights = {way: seen[way][number] for way in seen if number in seen[way]}
        if BARE in sights:
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


def options_of(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-search", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, help="how long to look")
    parser.add_argument("--seed", type=int, help="repeats the campaign of that seed")
    parser.add_argument("--sim", action="store_true", help="the simulated device in the place of the GPU")
    parser.add_argument("--batches", type=int, help="stops after so many batches")
    parser.add_argument("--programs", type=int, default=100, help="programs in a batch (default 100)")
    parser.add_argument("--build", type=Path, help="a build folder that is up to date, instead of build-search-gpu")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE",
                        help="runs the programs of files, one after the other, and compares the last")
    options = parser.parse_args(arguments)
    if options.replay is None and options.minutes is None:
        parser.error("MINUTES is missing")
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
    print(f"seed {seed}: scripts/gpu-search {options.minutes:g} --seed {seed}{device.flag()}", flush=True)
    campaign = Campaign(device, device.folder)
    dice = random.Random(seed)
    start = time.monotonic()
    n_batches = 0
    while time.monotonic() - start < options.minutes * 60 and len(campaign.failures) < FAILURES_MAX:
        run_batch(campaign, Batch.draw(dice, seed, options.programs))
        n_batches += 1
        if n_batches == options.batches:
            break
    seconds = max(time.monotonic() - start, 0.001)
    print(f"search: {campaign.operations} operations in {campaign.programs} programs, "
          f"{campaign.operations / seconds:.0f} operations a second, {campaign.hung_bare} programs did not end bare, "
          f"{len(campaign.failures)} failures")
    for name, n in sorted(campaign.explained.items()):
        print(f"search: {n} programs part by the rule {name} of test/model/differences.c")
    return 1 if campaign.failures or not campaign.programs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
