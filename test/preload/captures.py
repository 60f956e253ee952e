# SPDX-License-Identifier: MIT
"""Captures: with the library every call is answered as without it, and what a capture keeps from being reused comes back
when the capture ends, however it ends."""
import unittest

import harness

DRIVER, POOL = "driver", "pool"


class Captures(unittest.TestCase):
    def scene(self, name, *flags, **environment):
        """What the program printed, the same with and without the library, and who served it."""
        path = harness.simulated("capture" + "".join(flags), *flags, source="capture.c")
        bare = harness.run_simulated(path, name, preload=[], **environment)
        ours = harness.run_simulated(path, name, **environment)
        self.assertEqual((ours.status, ours.output), (0, bare.output), ours.errors)
        self.assertIn("begin 0\n", ours.output)
        self.assertNotIn(POOL, bare.errors)
        self.assertEqual(len(ours.statistics), 1, "not one process had a pool")
        self.told = ours.statistics[0]
        return ours.output.splitlines(), [tuple(line.split()) for line in ours.errors.splitlines()]

    def test_thread_local_is_nothing_to_other_threads(self):
        lines, served = self.scene("thread_local")
        self.assertEqual(served, [("malloc", POOL), ("async", POOL)] * 2)
        self.assertEqual(lines[:10], ["begin 0", "malloc 0", "async 0", "small 0", "free 0", "freeasync 0",
                                      "free small 0", "is capturing 0", "status 1", "end 0"])
        self.assertEqual(lines[10], "nodes 1")

    def test_global_refuses_and_dies(self):
        for name in ("global", "global_elsewhere"):
            with self.subTest(name=name):
                lines, served = self.scene(name)
                self.assertEqual(lines[1], "malloc 900")
                self.assertIn("status 2", lines)
                self.assertIn("end 901", lines)
                self.assertEqual(served[-2:], [("malloc", POOL), ("async", POOL)])

    def test_on_the_capturing_stream(self):
        lines, _ = self.scene("on_the_stream")
        self.assertEqual(lines, ["begin 0", "async 0", "free of the node 0", "freeasync 1", "freeasync again 1",
                                 "is capturing 0", "status 1", "end 0", "nodes 2", "free 0"])
        self.assertEqual((self.told["devices"][0]["mallocs"], self.told["devices"][0]["frees"]), (1, 1))
        self.assertEqual(self.told["requests"]["cudaMallocAsync"]["capturing"], 1)

    def test_contexts_that_are_met_beside_a_capture_are_served(self):
        for name, n in (("met", 1), ("met_green", 2)):
            with self.subTest(name=name):
                lines, served = self.scene(name)
                self.assertEqual(lines, ["begin 0", "malloc 0", "free 0", "is capturing 0", "status 1", "end 0", "nodes 0"]
                                 + ["malloc 0", "free 0"] * (n - 1))
                self.assertEqual(served, [("malloc", POOL)] * n)

    def returns(self, name, *flags):
        lines, served = self.scene(name, *flags, VPMM_SIM_BYTES="256M")
        self.assertEqual(served[-1], ("malloc", POOL))
        return lines

    def test_memory_returns_after_an_invalidated_capture(self):
        self.assertIn("end 901", self.returns("invalidated_returns"))

    def test_memory_returns_after_an_end_by_another_thread(self):
        self.assertIn("end 0", self.returns("ended_elsewhere_returns"))

    def test_memory_returns_after_an_end_by_the_wrong_thread(self):
        self.returns("wrong_thread_returns")

    def test_memory_returns_when_the_stream_is_destroyed(self):
        self.returns("destroyed_returns")

    def test_memory_returns_after_a_second_beginning(self):
        self.returns("begun_twice_returns")

    def test_memory_returns_after_a_capture_of_the_threads_own_stream(self):
        lines = self.returns("default_stream_returns", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
        self.assertIn("nodes 2", lines)


if __name__ == "__main__":
    harness.main()
