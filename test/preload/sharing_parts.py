# SPDX-License-Identifier: MIT
"""Legacy IPC of blocks that share pages: small ones, and those a little above whole pages."""
import os
import signal
import unittest

import harness
from sharing import INVALID_VALUE, LAZY, MIB, ODD, OK, Process

PAGE = 2 * MIB
SMALL, WIDE = 0, 3


class Parts(unittest.TestCase):
    def start(self, **more):
        return Process(self, **more)

    def pair(self, mib, **more):
        """Two processes, of which one has two blocks of bytes 5 and 6, and the other the second one's handle."""
        exporter, importer = self.start(**more), self.start(**more)
        for block in 0, 1:
            self.assertEqual(exporter.tell(f"malloc {mib}"), [OK])
            self.assertEqual(exporter.tell(f"fill b {block} {5 + block}"), [OK])
        return exporter, importer, exporter.get(1)

    def transcript(self, mib, **more):
        """What two processes see of one of two blocks."""
        exporter, importer, handle = self.pair(mib, **more)
        last = mib * MIB + ODD - 1
        lines = [exporter.ask("ipc b 1"), str(exporter.get(1) == handle), importer.ask(f"open {handle} {LAZY}")]
        lines += [importer.ask(f"read o 0 {offset}") for offset in (0, last)]
        lines += [importer.ask(command) for command in (f"range o 0 {last}", "context o 0", "fill o 0 9", "ipc o 0")]
        lines += [importer.ask("mapping o 0")]
        lines += [exporter.ask(f"read b {block} {offset}") for block in (0, 1) for offset in (0, last)]
        lines += [importer.ask(f"open {handle} {LAZY}"), importer.ask(f"open {exporter.get(0)} {LAZY}")]
        lines += [importer.ask("read o 1 0"), importer.ask("freeopen 0"), importer.ask("close 0")]
        lines += [importer.ask("read o 0 0"), importer.ask("close 0"), importer.ask("close 0"), importer.ask("close 1")]
        lines += [exporter.ask(f"open {handle} {LAZY}"), exporter.ask("free 1"), exporter.ask("free 1")]
        lines += [importer.ask(f"open {handle} {LAZY}"), exporter.ask("read b 0 0")]
        return lines

    def test_shares_as_bare(self):
        for mib in SMALL, WIDE:
            with self.subTest(mib=mib):
                ours = self.transcript(mib)
                self.assertEqual(ours, self.transcript(mib, preload=False))
                self.assertEqual(ours[:3] + ours[9:14], ["0 1", "True", "0 0", "0 1", "0 5", "0 5", "0 9", "0 9"])

    def test_one_warning(self):
        exporter, importer, handle = self.pair(SMALL)
        exporter.get(0)
        said = exporter.leave()
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("can reach 2.00 MiB of other memory", said)

    def test_refused_where_memory_may_not_be_shared(self):
        exporter = self.start(VPMM_IPC_SHARED="refuse")
        self.assertEqual(exporter.tell("malloc 0"), [OK])
        self.assertEqual(exporter.tell("ipc b 0"), [OK, 0])
        for _ in range(2):
            self.assertEqual(exporter.tell("get 0 0"), [INVALID_VALUE])
        self.assertEqual(exporter.tell("malloc 0"), [OK])
        self.assertEqual(exporter.tell("ipc b 1"), [OK, 1])
        exporter.get(1)
        said = exporter.leave()
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("cudaIpcGetMemHandle fails", said)

    def test_later_small_blocks_are_cudas_own(self):
        exporter, _, _ = self.pair(SMALL)
        bare = Process(self, preload=False)
        self.assertEqual(bare.tell(f"open {exporter.get(0)} {LAZY}"), [INVALID_VALUE, -1])
        self.assertEqual(exporter.tell("malloc 0"), [OK])
        self.assertEqual(exporter.tell("fill b 2 7"), [OK])
        self.assertEqual(bare.tell(f"open {exporter.get(2)} {LAZY}"), [OK, 0])
        self.assertEqual(bare.tell("read o 0 0"), [OK, 7])

    def test_a_freed_block_stays_as_it_is_while_it_is_open(self):
        exporter, importer, handle = self.pair(WIDE)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        self.assertEqual(exporter.tell("free 1"), [OK])
        for block in range(2, 12):
            self.assertEqual(exporter.tell(f"malloc {WIDE}"), [OK])
            self.assertEqual(exporter.tell(f"fill b {block} 7"), [OK])
            self.assertEqual(exporter.tell(f"overlaps 1 {block}"), [0])
        self.assertEqual(importer.tell("read o 0 0"), [OK, 6])
        self.assertEqual(self.start().tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])

    def leave(self, exporter):
        """Its leases and what they withhold."""
        exporter.leave()
        told = exporter.statistics["devices"][0]
        self.assertEqual(told["audit"], 0)
        return told["leased"], told["withheld_bytes"]

    def test_pages_are_withheld_when_all_their_blocks_are_freed(self):
        exporter, importer, handle = self.pair(SMALL)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        for block in 0, 1:
            self.assertEqual(exporter.tell(f"free {block}"), [OK])
        self.assertEqual(importer.tell("read o 0 0"), [OK, 6])
        self.assertEqual(self.leave(exporter), (1, PAGE))
        self.assertEqual(importer.tell("close 0"), [OK])

    def test_the_last_of_two_importers_counts(self):
        exporter, first, handle = self.pair(SMALL)
        second = self.start()
        for importer in first, second:
            self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        for block in 0, 1:
            self.assertEqual(exporter.tell(f"free {block}"), [OK])
        self.assertEqual(first.tell("close 0"), [OK])
        first.leave()
        self.assertEqual(second.tell("read o 0 0"), [OK, 6])
        self.assertEqual(self.leave(exporter), (1, PAGE))

    def test_the_end_of_the_exporting_context(self):
        exporter, importer, handle = self.pair(SMALL)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        self.assertEqual(exporter.tell("reset"), [OK])
        self.assertEqual(exporter.tell("device 0"), [OK])
        self.assertEqual(importer.tell("read o 0 0"), [OK, 6])
        self.assertEqual(self.start().tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])
        self.assertEqual(self.leave(exporter), (1, PAGE))

    def test_withheld_pages_go_back_to_the_device(self):
        exporter, importer, handle = self.pair(SMALL, VPMM_EXTENT=1)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        for block in 0, 1:
            self.assertEqual(exporter.tell(f"free {block}"), [OK])
        self.assertEqual(importer.tell("close 0"), [OK])
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])
        for command in "malloc 4", "get 2 0", "free 2":
            self.assertEqual(int(exporter.ask(command).split()[0]), OK)
        exporter.leave()
        told = exporter.statistics["devices"][0]
        self.assertEqual((told["leased"], told["withheld_bytes"], told["audit"]), (0, 0, 0))
        self.assertEqual(told["held_bytes"], 3 * PAGE)

    def test_a_child_of_the_exporter(self):
        exporter, importer, handle = self.pair(SMALL)
        code, child = exporter.tell("fork")
        self.assertEqual(code, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        self.assertEqual(importer.tell("read o 0 0"), [OK, 6])


if __name__ == "__main__":
    harness.main()
