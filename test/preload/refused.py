# SPDX-License-Identifier: MIT
"""What bare CUDA refuses about a block, a memory pool or a stream is refused with the library, too, and changes nothing."""
import unittest

import harness

INVALID_VALUE, INVALID_CONTEXT, ILLEGAL_ADDRESS, DESTROYED, NOT_PERMITTED = 1, 201, 700, 709, 800


class Refused(unittest.TestCase):
    def scene(self, name, **environment):
        """What the program printed, the same with and without the library."""
        path = harness.simulated("refused")
        bare = harness.run_simulated(path, name, preload=[], **environment)
        ours = harness.run_simulated(path, name, **environment)
        self.assertNotIn("unexpected", bare.output)
        self.assertEqual((bare.status, ours.status, ours.output), (0, 0, bare.output), ours.errors)
        self.assertGreater(ours.statistics[0]["devices"][0]["mallocs"], 0)
        return ours.output.splitlines()

    def test_a_block_is_no_mapping(self):
        for more in {}, {"VPMM_MIN_SIZE": "page"}:
            lines = self.scene("mappings", **more)
            for answer in "get 0", "flags 0", f"take {INVALID_VALUE}", f"give {INVALID_VALUE}", f"unmap {INVALID_VALUE}":
                self.assertEqual(lines.count(answer), 12)
            self.assertEqual(lines[-4:], ["own set 0", "own get 0", "own flags 1", "own unmap 0"])

    def test_the_one_attribute_that_can_be_set(self):
        for more in {}, {"VPMM_MIN_SIZE": "page"}:
            lines = self.scene("attributes", **more)
            for answer in (f"type to 1 set {INVALID_VALUE}", "nothing to 0 set 0", "sync to 1 set 0",
                           f"no value {INVALID_VALUE}", f"freed to 1 set {INVALID_VALUE}"):
                self.assertEqual(lines.count(answer), 6)
            self.assertEqual(lines.count("now 1"), 7)

    def test_synchronous_copies_are_complete_in_the_contexts_of_who_sets_it_and_of_the_block(self):
        path = harness.simulated("refused")
        output = harness.run_simulated(path, "attributes", TELL_FLAGS="1").output.splitlines()
        self.assertEqual([line for line in output if "flag" in line],
                         ["before, flag 0", "current, flag 0x80", "owner, flag 0x80"])

    def test_a_memory_pool_that_is_not_destroyed_stays_the_devices(self):
        lines = self.scene("pools")
        self.assertEqual(lines[:3], [f"{call} {NOT_PERMITTED}" for call in ("pool destroy", "ipc get", "ipc open")])
        self.assertEqual(lines[3:], ["of the pool 1", f"used {64 << 20}", "later pool destroy 0"])

    def test_a_stream_that_is_not_destroyed_goes_on_capturing(self):
        self.assertEqual(self.scene("capture"), [f"stream destroy {NOT_PERMITTED}", "free 0", "end 0", "graph 1"])

    def test_without_a_context_that_serves(self):
        lines = self.scene("contexts")
        calls = "range", "ipc get", "ipc open"
        for where, code in (("destroyed by another thread", DESTROYED), ("none", INVALID_CONTEXT),
                            ("broken", ILLEGAL_ADDRESS)):
            at = lines.index(where)
            self.assertEqual(lines[at + 1:at + 4], [f"{call} {code}" for call in calls])


if __name__ == "__main__":
    harness.main()
