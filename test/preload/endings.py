# SPDX-License-Identifier: MIT
"""Threads, signals in the middle of everything, and the end of a device or of the driver."""
import json
import os
import unittest

import harness
import reports

MIB = 1 << 20


class Endings(unittest.TestCase):
    def scene(self, name, **more):
        path = harness.simulated("ending", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
        return harness.run_simulated(path, name, **more)

    def test_each_thread_has_a_stream_of_its_own(self):
        run = self.scene("own_stream")
        self.assertEqual((run.status, run.output),
                         (0, "another thread gets the same memory 0\nthe same thread gets the same memory 1\n"))

    def test_broken_device_and_driver_that_is_gone(self):
        for name, code in ("broken", 700), ("late", 4):
            with self.subTest(name=name):
                bare, ours = self.scene(name, preload=[]), self.scene(name)
                self.assertEqual((ours.status, ours.output, ours.errors), (0, bare.output, ""))
                self.assertEqual({line.rsplit(" ", 1)[1] for line in ours.output.splitlines()}, {str(code)})
                waiting = self.scene(name, VPMM_FREE_SYNC=1)
                self.assertEqual((waiting.status, waiting.output, waiting.errors), (0, bare.output, ""))
                for run in ours, waiting:
                    self.assertEqual([told["devices"][0]["mallocs"] for told in run.statistics], [6])

    def test_frees_wait_where_asked_and_where_bare_cuda_would(self):
        for asked in 0, 1:
            with self.subTest(asked=asked):
                run = self.scene("waits", VPMM_FREE_SYNC=asked)
                self.assertEqual(run.output.splitlines()[1:],
                                 [f"free of cudaMalloc memory waits {asked}", "free of cudaMallocAsync memory waits 0",
                                  "freeasync of cudaMalloc memory waits 0"])

    def test_a_thread_with_a_small_stack_ends_the_process(self):
        run = self.scene("small", VPMM_TRACE=os.path.join(harness.work, "small-%p.vpmm"))
        self.assertEqual((run.status, run.errors), (0, ""))
        self.assertEqual([told["devices"][0]["live_bytes"] for told in run.statistics], [8 * MIB])

    def test_signals_in_a_storm(self):
        path = os.path.join(harness.work, "storm.json")
        run = self.scene("storm", VPMM_DUMP=path, VPMM_DUMP_FORMAT="json", VPMM_STATS="json")
        self.assertEqual((run.status, run.output), (0, "done\n"), run.errors)
        stats = json.loads(run.errors)["devices"][0]
        # Pages that blocks have shared are live until somebody needs them.
        self.assertEqual((stats["audit"], stats["small_blocks"]), (0, 0))
        self.assertEqual(stats["live_bytes"], stats["small_held_bytes"])
        with open(path, encoding="utf-8") as file:
            told = list(reports.dumps(file.read()))
        self.assertGreater(len(told), 1)
        for dump in told:
            self.assertTrue(reports.is_ordered(dump["devices"][0]), dump)
        last = told[-1]["devices"][0]
        self.assertTrue(reports.is_tiled(last), last)
        self.assertEqual((last["live_bytes"], last["busy_bytes"]), (stats["small_held_bytes"], 0))
        for name, state in ("reusable_bytes", "free"), ("hole_bytes", "hole"), ("zombie_bytes", "zombie"):
            pages = sum(region["pages"] for region in last["regions"] if region["state"] == state)
            self.assertEqual(last[name], pages * last["page_bytes"])

    def test_dump_that_cannot_be_written_goes_to_standard_error(self):
        run = self.scene("storm", VPMM_DUMP="/no-such-folder/dump", VPMM_DUMP_FORMAT="json")
        self.assertEqual((run.status, run.output), (0, "done\n"))
        self.assertGreater(len(list(reports.dumps(run.errors))), 1)

    def test_statistics_that_cannot_be_written_go_to_standard_error_and_are_announced(self):
        for path, why, said in (("/no-such-folder/s.json", "no such folder", '"live_bytes": '),
                                (harness.work + "/.", "it is a folder", "\n  live  ")):
            run = self.scene("storm", VPMM_STATS=path, VPMM_DUMP="/dev/null")
            self.assertEqual((run.status, run.output), (0, "done\n"))
            first, _, rest = run.errors.partition("\n")
            self.assertRegex(first, rf"^vpmm\[\d+\] warning: VPMM_STATS: {path} cannot be written: {why}; "
                                    "the statistics are here:$")
            self.assertIn(said, rest)
            self.assertNotIn("warning", self.scene("storm", VPMM_STATS=path, VPMM_DUMP="/dev/null", VPMM_LOG="none").errors)


if __name__ == "__main__":
    harness.main()
