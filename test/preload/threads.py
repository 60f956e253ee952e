# SPDX-License-Identifier: MIT
"""Threads that the driver refuses are refused with the library, too, and keep their blocks; a thread that is cancelled
in a call of ours leaves nothing behind that others wait for."""
import os
import unittest

import harness

POOL = ("async", "pool")


class Threads(unittest.TestCase):
    def path(self):
        return harness.simulated("threads", "-I" + os.path.join(harness.options.root, "src", "tools"))

    def test_a_host_function_is_refused_and_its_blocks_stay(self):
        bare = harness.run_simulated(self.path(), "host_function", preload=[])
        ours = harness.run_simulated(self.path(), "host_function")
        self.assertEqual((ours.status, ours.output), (0, bare.output), ours.errors)
        self.assertEqual(ours.output.count(" 800\n"), 14)
        self.assertEqual(ours.output.count("later freeasync 0\nagain 1\n"), 2)
        self.assertTrue(ours.output.endswith("later free 0\nagain 1\n"))
        self.assertEqual([tuple(line.split()) for line in ours.errors.splitlines()],
                         [("malloc", "pool"), POOL, POOL])
        self.assertEqual((ours.statistics[0]["devices"][0]["mallocs"], ours.statistics[0]["devices"][0]["frees"]), (3, 3))

    def test_a_cancelled_thread_leaves_nothing_to_wait_for(self):
        ours = harness.run_simulated(self.path(), "cancelled", VPMM_SIM_BYTES="256M", timeout=60)
        self.assertEqual(ours.status, 0, ours.errors)
        self.assertEqual(ours.output.splitlines(), ["malloc 0", "free 0", "cancelled 1", "free 0", "destroy 0"])
        self.assertEqual(ours.errors.splitlines(), ["malloc pool"] * 2)

    def test_a_thread_that_is_cancelled_while_it_waits_keeps_no_mark(self):
        for scene in "cancelled_wait", "cancelled_busy_wait", "cancelled_wait_per_thread":
            with self.subTest(scene=scene):
                bare = harness.run_simulated(self.path(), scene, preload=[], timeout=60)
                ours = harness.run_simulated(self.path(), scene, timeout=60)
                self.assertEqual((ours.status, ours.output), (0, bare.output), ours.errors)
                self.assertEqual(ours.output.splitlines(),
                                 ["freed at the end 0", "cancelled 1", "synchronize 0", "destroy 0"])
                self.assertEqual(ours.errors.splitlines(), ["malloc pool", "async pool"])

    def test_a_context_whose_destruction_is_cancelled_goes_on(self):
        ours = harness.run_simulated(self.path(), "cancelled_destroy", VPMM_SIM_BYTES="256M", timeout=60)
        self.assertEqual(ours.status, 0, ours.errors)
        self.assertEqual(ours.output.splitlines(), ["cancelled 1", "free 0", "destroy 0"])
        self.assertEqual(ours.errors.splitlines(), ["malloc pool"] * 2)


if __name__ == "__main__":
    harness.main()
