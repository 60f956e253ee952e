# SPDX-License-Identifier: MIT
"""The search for differences on a GPU, with the simulated device in its place: programs that behave see the same in all
three ways, and one that does not is found, made short and replayed. Usage: test_search.py BUILD_FOLDER"""
from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List

import search
from batch import BARE, PRELOADED, SIMULATED, Batch, Device, Sight, sight_of

BUILD = Path(sys.argv.pop())


class Faulty(Device):
    """Preloaded, one allocation of each process is refused."""

    def environment(self, tested: Batch, way: str) -> Dict[str, str]:
        environment = super().environment(tested, way)
        if way == PRELOADED:
            del environment["LD_PRELOAD"]
            environment["VPMM_SIM_FAULT"] = "cuMemAllocAsync:3:2"
        return environment


def batch(n_programs: int) -> Batch:
    return Batch(first=100, n_programs=n_programs, campaign_seed=1, steps=80)


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
        self.assertEqual(campaign.hung_bare, 0)
        self.assertGreater(campaign.operations, 12 * 3 * 60)

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
