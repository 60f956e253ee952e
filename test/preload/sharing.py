# SPDX-License-Identifier: MIT
"""Legacy IPC between processes: an exporter and importers, each told what to do one command at a time."""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

import harness

MIB = 1 << 20
ODD = 13
LAZY = 1
OK, INVALID_VALUE, INVALID_CONTEXT, MAP_FAILED = 0, 1, 201, 205
PATIENCE_S = 60
PAGES = {"VPMM_MIN_SIZE": "page"}  # sharing_parts.py has blocks that share pages


class Process:
    """A running program of programs/share.c."""

    def __init__(self, test, preload=True, **environment):
        self.folder = tempfile.mkdtemp(dir=harness.work)
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("VPMM_", "STUB_", "SPY_", "LD_"))}
        env["LD_LIBRARY_PATH"] = harness.options.sim
        if preload:
            env["LD_PRELOAD"] = harness.options.shared_library
        env.update(VPMM_STATS=os.path.join(self.folder, "statistics.json"), VPMM_SIM_STRICT="2")
        env.update({key: str(value) for key, value in environment.items()})
        with open(os.path.join(self.folder, "errors"), "wb") as errors:
            self.process = subprocess.Popen([harness.simulated("share", f"-I{harness.options.root}/include")], env=env, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, text=True)
        test.addCleanup(self.kill)
        assert self.tell("device 0") == [OK]

    def ask(self, command):
        """The line that answers."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def tell(self, command):
        """The numbers that answer."""
        return [int(word) for word in self.ask(command).split()]

    def get(self, block, offset=0):
        """The handle, after a success."""
        code, handle = self.ask(f"get {block} {offset}").split()
        assert int(code) == OK, code
        return handle

    def withholds(self):
        """Whether memory that it freed stays out of reuse, because it is open elsewhere."""
        code, withheld_bytes = self.tell("withheld")
        assert code == OK, code
        return withheld_bytes > 0

    def leave(self):
        """Ends it in the ordinary way; what it said on standard error."""
        if self.process.poll() is None:
            self.process.stdin.write("leave\n")
            self.process.stdin.close()
        status = self.process.wait(timeout=PATIENCE_S)
        assert status == 0, status
        return self.errors

    @property
    def errors(self):
        with open(os.path.join(self.folder, "errors"), encoding="utf-8") as file:
            return file.read()

    @property
    def statistics(self):
        with open(os.path.join(self.folder, "statistics.json"), encoding="utf-8") as file:
            return json.load(file)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in self.process.stdin, self.process.stdout:
            try:
                stream.close()
            except BrokenPipeError:
                pass


def until(is_so):
    """Asks again until it is so: what another process does takes its time, and nobody announces it."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it never happens"


def is_listed(exporter):
    """Whether a socket is there by which others could ask that process."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        return f"@vpmm-{exporter.process.pid}-" in file.read()


class Sharing(unittest.TestCase):
    def start(self, **more):
        return Process(self, **more)

    def pair(self, mib=4, **more):
        """Two processes, of which one has a block of bytes 5 and the other its handle."""
        exporter, importer = self.start(**more), self.start(**more)
        self.assertEqual(exporter.tell(f"malloc {mib}"), [OK])
        self.assertEqual(exporter.tell("fill b 0 5"), [OK])
        return exporter, importer, exporter.get(0)

    def transcript(self, **more):
        """What two processes see of one block."""
        exporter, importer, handle = self.pair(**more)
        lines = [exporter.ask("ipc b 0"), importer.ask(f"open {handle} {LAZY}")]
        last = 4 * MIB + ODD - 1
        lines += [importer.ask(f"read o 0 {offset}") for offset in (0, last)]
        lines += [importer.ask(command) for command in (f"range o 0 {last}", "context o 0", "fill o 0 9", "ipc o 0")]
        lines += [exporter.ask(f"read b 0 {offset}") for offset in (0, last)]
        lines += [importer.ask(f"open {handle} {LAZY}"), importer.ask("freeopen 0")]
        lines += [importer.ask("close 0"), importer.ask("read o 0 0"), importer.ask("close 0"), importer.ask("close 0")]
        lines += [exporter.ask(f"open {handle} {LAZY}"), importer.ask(f"open {handle} 2"), exporter.ask("free 0")]
        return lines

    def test_shares_as_bare(self):
        ours = self.transcript()
        self.assertEqual(ours, self.transcript(preload=False))
        self.assertEqual(ours[:2], ["0 1", "0 0"])
        self.assertEqual(ours[2:4], ["0 5", "0 5"])
        self.assertEqual(ours[8:11], ["0 9", "0 9", "0 0"])

    def test_a_close_without_a_context(self):
        seen = []
        for preload in True, False:
            exporter, importer, handle = self.pair(preload=preload)
            seen.append([importer.ask(command) for command in (
                f"open {handle} {LAZY}", "detach", "close 0", "device 0", "read o 0 0", "close 0", "close 0")])
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0][2:6], [str(INVALID_CONTEXT), "0", "0 5", "0"])

    def test_an_open_block_is_no_mapping(self):
        for preload in True, False:
            exporter, importer, handle = self.pair(preload=preload)
            self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
            self.assertEqual(importer.tell("access o 0"), [OK, INVALID_VALUE, INVALID_VALUE])
            self.assertEqual(exporter.tell("access b 0"), [OK, INVALID_VALUE, INVALID_VALUE])
            self.assertEqual((importer.tell("fill o 0 9"), exporter.tell("read b 0 0")), ([OK], [OK, 9]))

    def test_another_opening_after_the_last_close(self):
        exporter, importer, handle = self.pair()
        for byte in 5, 6:
            self.assertEqual(exporter.tell(f"fill b 0 {byte}"), [OK])
            code, number = importer.tell(f"open {handle} {LAZY}")
            self.assertEqual((code, importer.tell(f"read o {number} 0")), (OK, [OK, byte]))
            self.assertEqual(importer.tell(f"close {number}"), [OK])

    def test_a_handle_names_the_whole_block(self):
        exporter, importer, handle = self.pair()
        self.assertEqual(exporter.get(0, 3 * MIB), handle)
        self.assertEqual(exporter.tell(f"get 0 {4 * MIB + ODD}"), [INVALID_VALUE])

    def test_what_has_no_handle(self):
        exporter = self.start()
        for preparation, command in (("async 4", "get 0 0"), ("malloc 4", "get 1 5242880")):
            self.assertEqual(exporter.tell(preparation), [OK])
            self.assertEqual(exporter.tell(command), [INVALID_VALUE])
        self.assertEqual(exporter.tell("free 1"), [OK])
        self.assertEqual(exporter.tell("get 1 0"), [INVALID_VALUE])
        self.assertEqual(exporter.tell("ipc b 0"), [OK, 0])

    def test_blocks_of_many_extents(self):
        more = dict(VPMM_EXTENT=1)
        exporter, importer, handle = self.pair(mib=300, **more)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        for page in range(0, 151, 10):
            self.assertEqual(importer.tell(f"read o 0 {page * 2 * MIB}"), [OK, 5])
        self.assertEqual(importer.tell("range o 0 0"), [OK, 1, 300 * MIB + ODD])

    def test_a_block_within_an_extent(self):
        exporter, importer = self.start(), self.start()
        for command in "malloc 62", "free 0", "malloc 2", "malloc 20", "fill b 1 1", "fill b 2 7":
            self.assertEqual(exporter.tell(command), [OK])
        handle = exporter.get(2)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        self.assertEqual(importer.tell("range o 0 5"), [OK, 1, 20 * MIB + ODD])
        self.assertEqual(importer.tell(f"read o 0 {20 * MIB}"), [OK, 7])
        self.assertEqual(importer.tell("fill o 0 8"), [OK])
        self.assertEqual((exporter.tell("read b 1 0"), exporter.tell("read b 2 0")), ([OK, 1], [OK, 8]))

    def is_leased(self, exporter, block):
        """Whether what was that block stays out of reuse."""
        code, is_taken = exporter.tell(f"taken {block}")
        self.assertEqual(code, OK)
        return is_taken == 1

    def test_a_freed_block_is_not_used_while_it_is_open(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(exporter.tell("free 0"), [OK])
        for _ in range(3):
            self.assertTrue(self.is_leased(exporter, 0))
        self.assertEqual(exporter.tell("free 0"), [INVALID_VALUE])
        self.assertEqual(importer.tell("read o 0 0"), [OK, 5])
        self.assertEqual(self.start().tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])
        self.assertEqual(importer.tell("close 0"), [OK])
        until(lambda: not exporter.withholds())

    def test_a_freed_block_that_nobody_opened_is_used_again(self):
        exporter, importer, handle = self.pair(**PAGES)
        self.assertEqual(exporter.tell("free 0"), [OK])
        self.assertFalse(self.is_leased(exporter, 0))
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])

    def test_another_block_at_the_same_address_has_another_handle(self):
        exporter, importer, handle = self.pair(**PAGES)
        for command in "free 0", "malloc 4":
            self.assertEqual(exporter.tell(command), [OK])
        self.assertEqual(exporter.tell("overlaps 0 1"), [1])
        self.assertNotEqual(exporter.get(1), handle)
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])

    def test_the_last_of_two_importers_counts(self):
        exporter, first, handle = self.pair()
        second = self.start()
        for importer in first, second:
            self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        self.assertEqual(exporter.tell("free 0"), [OK])
        self.assertEqual(first.tell("close 0"), [OK])
        first.leave()
        self.assertTrue(self.is_leased(exporter, 0))
        self.assertEqual(second.tell("read o 0 0"), [OK, 5])
        self.assertEqual(second.tell("close 0"), [OK])
        until(lambda: not exporter.withholds())

    def test_an_importer_that_is_killed(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(exporter.tell("free 0"), [OK])
        self.assertTrue(self.is_leased(exporter, 0))
        importer.kill()
        until(lambda: not exporter.withholds())

    def test_an_importer_that_ends(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(exporter.tell("free 0"), [OK])
        self.assertTrue(exporter.withholds())
        self.assertEqual(importer.leave(), "")
        until(lambda: not exporter.withholds())

    def test_a_child_of_the_importer_keeps_nothing(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        code, child = importer.tell("fork")
        self.assertEqual(code, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.assertEqual(exporter.tell("free 0"), [OK])
        self.assertTrue(exporter.withholds())
        importer.process.kill()
        importer.process.wait()
        until(lambda: not exporter.withholds())

    def test_an_exporter_that_ends(self):
        for end in Process.leave, Process.kill:
            with self.subTest(end=end.__name__):
                exporter, importer, handle = self.pair()
                self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
                end(exporter)
                self.assertEqual(importer.tell("read o 0 0"), [OK, 5])
                self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
                for _ in range(2):
                    self.assertEqual(importer.tell("close 0"), [OK])
                self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])
                self.assertEqual(importer.leave(), "")

    def test_a_child_of_the_exporter_serves_nobody(self):
        exporter, importer, handle = self.pair()
        code, child = exporter.tell("fork")
        self.assertEqual(code, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        exporter.process.kill()
        exporter.process.wait()
        until(lambda: not is_listed(exporter))
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])

    def test_an_exporter_whose_threads_have_small_stacks(self):
        exporter, importer = self.start(VPMM_EXTENT=1), self.start()
        for command in "stacks", "malloc 300", "fill b 0 5":
            self.assertEqual(exporter.tell(command), [OK])
        self.assertEqual(importer.tell(f"open {exporter.get(0)} {LAZY}"), [OK, 0])
        self.assertEqual(importer.tell(f"read o 0 {300 * MIB}"), [OK, 5])
        exporter.leave()

    def test_nothing_is_left_behind(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        self.assertTrue(is_listed(exporter))
        importer.tell("close 0")
        importer.kill()
        exporter.kill()
        until(lambda: not is_listed(exporter))

    def test_processes_without_the_library(self):
        exporter, importer, handle = self.pair()
        bare = self.start(preload=False)
        self.assertEqual(bare.tell(f"open {handle} {LAZY}"), [INVALID_VALUE, -1])
        self.assertEqual(bare.tell("malloc 4"), [OK])
        self.assertEqual(bare.tell("fill b 0 3"), [OK])
        self.assertEqual(importer.tell(f"open {bare.get(0)} {LAZY}"), [OK, 0])
        self.assertEqual(importer.tell("read o 0 0"), [OK, 3])
        self.assertEqual(importer.tell("close 0"), [OK])

    def test_without_emulation(self):
        exporter, importer, handle = self.pair(VPMM_IPC=0)
        bare = self.start(preload=False)
        for process in importer, bare:
            self.assertEqual(process.tell(f"open {handle} {LAZY}"), [OK, 0])
            self.assertEqual(process.tell("read o 0 0"), [OK, 5])
        self.assertEqual(exporter.tell("async 4"), [OK])
        exporter.leave()
        requests = exporter.statistics["requests"]
        self.assertEqual((requests["cudaMalloc"]["no_ipc"], requests["cudaMalloc"]["pool"]), (1, 0))
        self.assertEqual(requests["cudaMallocAsync"]["pool"], 1)

    def test_statistics(self):
        exporter, importer, handle = self.pair(**PAGES)
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(exporter.tell("free 0"), [OK])
        exporter.leave()
        told = exporter.statistics["devices"][0]
        self.assertEqual((told["leased"], told["withheld_bytes"], told["live_bytes"]), (1, 6 * MIB, 0))
        self.assertEqual(told["audit"], 0)

    def test_the_end_of_the_exporting_context(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(exporter.tell("reset"), [OK])
        self.assertEqual(exporter.tell("device 0"), [OK])
        self.assertTrue(self.is_leased(exporter, 0))
        self.assertEqual(importer.tell("read o 0 0"), [OK, 5])
        self.assertEqual(importer.tell("close 0"), [OK])
        until(lambda: not exporter.withholds())

    def test_the_end_of_the_importing_context(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(exporter.tell("free 0"), [OK])
        self.assertTrue(exporter.withholds())
        self.assertEqual(importer.tell("reset"), [OK])
        until(lambda: not exporter.withholds())
        self.assertEqual(importer.tell("device 0"), [OK])
        self.assertEqual(importer.tell("close 0"), [INVALID_VALUE])

    def test_a_close_waits_for_the_work_on_the_block(self):
        exporter, importer, handle = self.pair(VPMM_SIM_EAGER=0)
        importer.tell(f"open {handle} {LAZY}")
        self.assertEqual(importer.tell("queue o 0"), [OK])
        self.assertEqual(importer.tell("close 0"), [OK])
        self.assertEqual(exporter.tell("read b 0 0"), [OK, 1])

    def test_a_second_device(self):
        more = dict(VPMM_SIM_DEVICES=2)
        exporter, importer, handle = self.pair(**more)
        self.assertEqual(importer.tell("device 1"), [OK])
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        self.assertEqual(importer.tell("fill o 0 4"), [OK])
        self.assertEqual(exporter.tell("read b 0 0"), [OK, 4])
        self.assertEqual(importer.tell("close 0"), [OK])

    def test_failures_of_our_own_calls_undo_what_was_done(self):
        exporter = self.start(VPMM_EXTENT=1)
        self.assertEqual(exporter.tell("malloc 6"), [OK])
        self.assertEqual(exporter.tell("fill b 0 5"), [OK])
        handle = exporter.get(0)
        for name, n in (("cuMemImportFromShareableHandle", 4), ("cuMemMap", 4), ("cuMemSetAccess", 1),
                        ("cuMemAddressReserve", 1), ("cuMemGetAllocationPropertiesFromHandle", 4)):
            for nth in range(1, n + 1):
                with self.subTest(name=name, nth=nth):
                    importer = self.start(VPMM_SIM_FAULT=f"{name}:{nth}:2")
                    self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [MAP_FAILED, -1])
                    self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
                    self.assertEqual(importer.tell(f"read o 0 {6 * MIB}"), [OK, 5])
                    self.assertEqual(importer.tell("close 0"), [OK])
        self.assertEqual(exporter.tell("free 0"), [OK])
        until(lambda: not exporter.withholds())

    def test_a_broken_device(self):
        exporter, importer, handle = self.pair()
        importer.tell(f"open {handle} {LAZY}")
        importer.tell("break")
        self.assertEqual(importer.tell("close 0"), [700])
        self.assertEqual(self.start().tell(f"open {handle} {LAZY}"), [OK, 0])


if __name__ == "__main__":
    harness.main()
