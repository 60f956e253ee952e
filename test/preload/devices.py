# SPDX-License-Identifier: MIT
"""Two devices, memory pools and contexts of the program's own: the same answers and bytes as without the library, and
served by whom."""
import unittest

import harness

DRIVER, POOL = "driver", "pool"
MIB = 1 << 20


class Devices(unittest.TestCase):
    def scene(self, name, **environment):
        """What the program printed, the same with and without the library, and who served it."""
        path = harness.simulated("devices")
        environment = {"VPMM_SIM_DEVICES": 2, **environment}
        bare = harness.run_simulated(path, name, preload=[], **environment)
        ours = harness.run_simulated(path, name, **environment)
        self.assertEqual((bare.status, ours.status, ours.output), (0, 0, bare.output), ours.errors)
        self.assertNotIn(POOL, bare.errors)
        self.assertNotIn("unexpected", bare.output)
        self.assertEqual(len(ours.statistics), 1, "not one process had a pool")
        self.told = ours.statistics[0]
        return ours.output.splitlines(), [tuple(line.rsplit(" ", 1)) for line in ours.errors.splitlines()]

    def test_peers_reach_everything_from_either_device(self):
        lines, served = self.scene("peers")
        self.assertEqual(served, [("malloc", POOL)] * 3)
        self.assertEqual(lines.count("first 0 7") + lines.count("second 0 7"), 4)
        self.assertEqual(lines.count("first 0 9") + lines.count("second 0 9"), 4)
        for line in ("copy 0", "unified copy 0", "async copy 0"):
            self.assertEqual(lines.count(line), 4)

    def test_strangers_get_cudamalloc_from_the_driver(self):
        for peers, server in ((1, POOL), (0, DRIVER)):
            with self.subTest(peers=peers):
                lines, served = self.scene("strangers", VPMM_SIM_PEERS=peers)
                self.assertEqual(served, [("malloc", server), ("async", POOL), ("malloc", server)])
                self.assertEqual(lines.count("copy 0"), 2)

    def test_the_device_of_a_stream(self):
        lines, served = self.scene("streams")
        self.assertEqual(served, [("async", POOL)] * 2)
        self.assertIn("device 1", lines)

    def test_memory_pools(self):
        _, served = self.scene("pools")
        self.assertEqual(served, [("explicit", POOL), ("for other processes", DRIVER), ("default", POOL),
                                  ("async", POOL), ("default", POOL), ("malloc", POOL), ("async", DRIVER),
                                  ("async", POOL), ("async", POOL), ("async", POOL),
                                  ("default of another device", DRIVER)])

    def test_room_is_made_on_the_device_that_lacks_it(self):
        lines, _ = self.scene("room", VPMM_SIM_BYTES="256M")
        self.assertEqual(lines, ["create 0", "explicit 0"])
        device = self.told["devices"][0]
        self.assertEqual((device["device"], device["mallocs"], device["frees"]), (0, 2, 2))
        self.assertGreater(device["trimmed_bytes"], 200 * MIB)

    def test_access_to_the_default_pool(self):
        for name in ("pool_access", "own_pool_access"):
            with self.subTest(name=name):
                lines, served = self.scene(name)
                self.assertEqual(served, [("async", POOL)])
                self.assertEqual(lines[1:], ["access 0", "write 0", "read 0 5", "free 0"])

    def test_contexts_end_with_memory(self):
        for name in ("destroyed_context", "released_context"):
            with self.subTest(name=name):
                lines, served = self.scene(name)
                self.assertEqual([who for _, who in served], [POOL] * 3)
                self.assertIn("free of cudaMalloc memory 1", lines)
                self.assertIn("free of cudaMallocAsync memory 0", lines)

    def test_green_context(self):
        _, served = self.scene("green_context")
        self.assertEqual(served, [("async", POOL), ("malloc", POOL), ("async", POOL)])


if __name__ == "__main__":
    harness.main()
