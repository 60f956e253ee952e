# SPDX-License-Identifier: MIT
"""Contexts that end, however they end: what they owned is free as on bare CUDA, nothing of them is taken for another
context's, and nobody waits for a wait of ours."""
import unittest

import harness


class Ends(unittest.TestCase):
    def scene(self, name, **environment):
        """What the program printed, the same with and without the library. Nothing is live at its end."""
        path = harness.simulated("ends")
        bare = harness.run_simulated(path, name, preload=[], **environment)
        ours = harness.run_simulated(path, name, **environment)
        self.assertEqual((bare.status, ours.status, ours.output), (0, 0, bare.output), ours.errors)
        self.assertNotIn("unexpected", bare.output)
        device = ours.statistics[0]["devices"][0]
        self.assertEqual((device["live_bytes"], device["audit"]), (0, 0))
        self.assertGreater(device["mallocs"], 0)
        return ours.output.splitlines()

    def expect_rest(self, lines):
        """cudaMalloc memory went with its context, cudaMallocAsync memory did not."""
        self.assertEqual(lines[-3:], ["free of cudaMalloc memory 1", "free of cudaMallocAsync memory 0", "free 0"])

    def test_the_last_detach_ends_a_context(self):
        lines = self.scene("detach")
        self.assertIn("still there 0", lines)
        self.expect_rest(lines)

    def test_a_handle_that_comes_again_is_another_context(self):
        for name in "detached_again", "destroyed_again":
            with self.subTest(name=name):
                lines = self.scene(name, VPMM_SIM_REUSE_HANDLES=1)
                self.assertIn("the handle again 1", lines)
                self.assertIn("byte 7", lines)
                self.assertIn("free of what the first one had 1", lines)
                self.assertEqual(lines[-1], "free of cudaMallocAsync memory 0")

    def test_the_last_green_context_ends_the_primary_one(self):
        for name in "green_alone", "green_last":
            with self.subTest(name=name):
                lines = self.scene(name)
                self.assertEqual([line for line in lines if line.startswith("active")], ["active 1", "active 0"])
                self.assertIn("still there 0", lines)
                self.expect_rest(lines)

    def test_a_primary_context_that_another_thread_brings_to_life_again_has_ended(self):
        lines = self.scene("retained_between")
        self.assertIn("the same handle 1", lines)
        self.expect_rest(lines)

    def test_a_reference_is_given_up_while_another_thread_waits(self):
        lines = self.scene("release_beside_a_wait", VPMM_SIM_BYTES="256M")
        self.assertEqual({line.rsplit(" ", 1)[1] for line in lines}, {"0"})
        self.assertEqual(lines[0], "release 0")

    def test_resets_beside_requests(self):
        for reuse in 0, 1:
            lines = self.scene("reset_beside_requests", VPMM_SIM_REUSE_HANDLES=reuse)
            self.assertEqual(lines, ["memset 0", "wait 0", "free 0"])


if __name__ == "__main__":
    harness.main()
