# SPDX-License-Identifier: MIT
"""What happens to a process: nothing where there is no CUDA; signals, forks, the exit, messages and options; and what a
program sees of memory that the pool serves."""
import json
import os
import re
import signal
import unittest

import harness

MIB = 1 << 20
BUFFER_ID_OURS = 1 << 63
# Small requests are CUDA's, and all other blocks have whole pages.
PAGES = {"VPMM_MIN_SIZE": "page"}


def driver(folder, name, *flags):
    """The program `driver`, linked to the libcuda of `folder`."""
    return harness.program(name, *flags, "-isystem", harness.options.cuda_headers,
                           os.path.join(folder, "libcuda.so.1"), source="driver.c")


def requests(table):
    """The requests of a table of statistics without a pool: {kind: {what became of them: how many}}."""
    lines = table.splitlines()
    found = {}
    for line in lines[lines.index("no pool was made: CUDA answered every request") + 1:]:
        if not line.startswith("  "):
            found[line] = {}
        elif line != "  no requests":
            text, number = re.fullmatch(r"  (.*?) +(\d+)  [\d.]+%", line).groups()
            found[list(found)[-1]][text] = int(number)
    return found


class Untouched(unittest.TestCase):
    def test_program_without_cuda(self):
        program = harness.program("quiet")
        bare = harness.Run([program], preload=[])
        run = harness.Run([program], VPMM_STATS=1, VPMM_LOG="debug", VPMM_PAGES="nonsense", VPMM_NO_SUCH="1")
        self.assertEqual(bare.status, -signal.SIGUSR1)
        self.assertEqual((run.status, run.output, run.errors), (bare.status, bare.output, ""))

    def test_common_programs(self):
        for command in (["sh", "-c", "echo hello | cat"], ["ls", "/"], ["env", "true"]):
            bare, run = harness.Run(command, preload=[]), harness.Run(command)
            self.assertEqual((run.status, run.output, run.errors), (bare.status, bare.output, ""))

    def test_missing_driver(self):
        program = harness.program("reach")
        bare = harness.Run([program, "open", "libcuda.so.1"], preload=[])
        run = harness.Run([program, "open", "libcuda.so.1"])
        self.assertEqual((run.status, run.output, run.errors), (bare.status, bare.output, bare.errors))


class Passing(unittest.TestCase):
    """On a driver that can do nothing for a pool every call passes through."""

    def run_stub(self, *arguments, **environment):
        folder = harness.stub()
        return harness.Run([driver(folder, "driver-stub"), *arguments], library_path=[folder], **environment)

    def test_no_pool_no_trace(self):
        run = self.run_stub("malloc:8", "free:0", "signal", VPMM_PAGES="nonsense")
        self.assertEqual(run.output, "malloc 0\nfree 0\nsignal other\n")
        self.assertEqual(run.errors, "")
        self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemFree_v2"])

    def test_statistics_say_why_it_cannot(self):
        run = self.run_stub("malloc:8", "malloc:1", "free:0", VPMM_STATS=1)
        self.assertEqual(requests(run.errors), {"cudaMalloc": {"the driver or the device cannot do it": 2},
                                                "cudaMallocAsync": {}}, run.errors)
        self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemAlloc_v2", "cuMemFree_v2"])

    def test_fork_without_a_pool_is_a_fresh_process(self):
        run = self.run_stub("malloc:8", "fork:child-", "malloc:8", "signal")
        self.assertEqual(run.output, "malloc 0\nchild-malloc 0\nchild-signal other\nchild 0 0\nmalloc 0\nsignal other\n")
        self.assertEqual(run.calls, ["cuMemAlloc_v2"] * 3)


class Served(unittest.TestCase):
    def run_sim(self, *arguments, build=("driver-sim",), **environment):
        folder = harness.options.sim
        return harness.Run([driver(folder, *build), *arguments], library_path=[folder], **environment)

    def lines(self, *arguments, **environment):
        run = self.run_sim(*arguments, **environment)
        self.assertEqual(run.status, 0, run.output + run.errors)
        return run.output.splitlines()

    def served(self, *arguments, mallocs, frees, **environment):
        """The lines, and what the statistics tell, of a program of which the pool of whole pages served so many calls.
        Where blocks share pages the lines are the same, and as many mallocs are served, or more."""
        runs = [self.run_sim(*arguments, **environment, **more) for more in ({}, PAGES)]
        for run in runs:
            self.assertEqual(run.status, 0, run.output + run.errors)
            self.assertEqual(len(run.statistics), 1, "not one process had a pool")
        self.assertEqual(runs[0].output, runs[1].output)
        shared, told = (run.statistics[0] for run in runs)
        self.assertGreaterEqual(sum(kind["pool"] for kind in shared["requests"].values()), mallocs)
        self.assertEqual((told["devices"][0]["mallocs"], told["devices"][0]["frees"]), (mallocs, frees))
        return runs[1].output.splitlines(), told

    def test_a_host_function_is_refused_as_without_us(self):
        words = "init", "async:4", "within:0"
        bare = self.lines(*words, VPMM_DISABLE=1)
        self.assertEqual(self.lines(*words), bare)
        self.assertIn("within 800 800", bare)

    def test_small_blocks_are_reserved_once(self):
        self.assertEqual(self.lines("init", "small:512", "reserved")[-1], "reserved 0 32 32")

    def test_the_most_that_was_reserved_stays_when_small_blocks_are_given_back(self):
        words = "init", "small:1", "reserved", "freeasync:0", "trim", "reserved"
        self.assertEqual(self.lines(*words), self.lines(*words, VPMM_DISABLE=1))
        self.assertEqual(self.lines(*words)[-1], "reserved 0 0 2")

    """On the simulated device."""

    def as_bare(self, *arguments, mallocs, frees, **environment):
        """The same, where bare CUDA answers the same."""
        lines, told = self.served(*arguments, mallocs=mallocs, frees=frees, **environment)
        self.assertEqual(lines, self.lines(*arguments, **{**environment, "VPMM_DISABLE": 1}))
        return lines, told

    def is_served(self, *arguments, **environment):
        """Whether the block made last is the pool's: only those have buffer ids of ours."""
        last = self.lines(*arguments, **environment)[-1]
        self.assertIn("attributes 0", last)
        return int(last.rsplit("=", 1)[1]) >= BUFFER_ID_OURS

    def test_who_serves(self):
        for kind in ("malloc", "async", "fromdefault"):
            with self.subTest(kind=kind):
                self.assertTrue(self.is_served("init", f"{kind}:8", "attributes:0"))
                self.assertFalse(self.is_served("init", f"{kind}:8", "attributes:0", VPMM_DISABLE=1))
                self.assertTrue(self.is_served("init", f"{kind}:1", "attributes:0"))
                self.assertFalse(self.is_served("init", f"{kind}:1", "attributes:0", **PAGES))
        self.assertFalse(self.is_served("init", "malloc:8", "attributes:0", VPMM_ONLY="no-such-program"))
        self.assertTrue(self.is_served("init", "malloc:8", "attributes:0", VPMM_ONLY="one,driver-sim"))
        self.assertFalse(self.is_served("init", "pitch:8", "attributes:0"))
        self.assertTrue(self.is_served("init", "pitch:8", "pitch:8", "attributes:1"))
        self.assertTrue(self.is_served("init", "setpool", "async:8", "attributes:0"))
        self.assertFalse(self.is_served("init", "setpool", "async:1", "attributes:0"))

    def test_statistics_without_a_pool(self):
        """Whatever became of a request, the statistics count it."""
        small = ("malloc:1", "async:1", "pitch:1", "pitch:1")
        for calls, more, told in (
                (small, PAGES, {"cudaMalloc": {"smaller than the threshold": 2, "for another reason": 1},
                             "cudaMallocAsync": {"smaller than the threshold": 1}}),
                (("malloc:8",), {"VPMM_IPC": 0},
                 {"cudaMalloc": {"VPMM_IPC=0 leaves cudaMalloc to CUDA": 1}, "cudaMallocAsync": {}}),
                (("malloc:8", *small), {"VPMM_DISABLE": 1},
                 {"cudaMalloc": {"disabled": 4}, "cudaMallocAsync": {"disabled": 1}})):
            with self.subTest(**more):
                run = self.run_sim("init", *calls, VPMM_STATS=1, **more)
                self.assertEqual(run.status, 0)
                self.assertEqual(requests(run.errors), told, run.errors)
        run = self.run_sim("init", "malloc:8", VPMM_STATS=1, VPMM_ONLY="no-such-program")
        self.assertEqual((run.status, run.errors), (0, ""))

    def test_statistics_of_a_child_that_can_have_no_pool(self):
        run = self.run_sim("init", "malloc:8", "fork:child-", "malloc:8")
        self.assertEqual([told["requests"]["cudaMalloc"]["other"] for told in run.all_statistics if not told["devices"]],
                         [1], run.all_statistics)

    def test_no_statistics_without_a_request(self):
        run = self.run_sim("init", VPMM_STATS=1, VPMM_DISABLE=1)
        self.assertEqual((run.status, run.errors), (0, ""))
        run = self.run_sim("init", VPMM_STATS=1)
        self.assertRegex(run.errors, r"^vpmm\[\d+\] statistics of \S+: it asked CUDA for no memory\n$")

    def test_per_thread_default_stream(self):
        build = ("driver-per-thread", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
        for kind in ("async", "fromdefault"):
            self.assertTrue(self.is_served("init", f"{kind}:8", "freeasync:0", f"{kind}:8", "attributes:1",
                                           build=build))

    def test_no_context(self):
        arguments = ("malloc:8", "async:8", "freeaddress:4096", "init", "malloc:8")
        lines, told = self.as_bare(*arguments, mallocs=1, frees=0)
        self.assertEqual(lines[3:], ["init 0", "malloc 0"])
        for kind in told["requests"].values():
            self.assertEqual(kind["no_context"], 1)

    def test_ranges(self):
        for kind in ("malloc", "async"):
            bytes_ = 5 * MIB + 13
            lines, _ = self.served("init", f"{kind}:5", "range:0:0", f"range:0:{bytes_ - 1}", "address:0:0",
                                   f"address:0:{bytes_ - 1}", "retain:0", "free:0", "free:0", mallocs=1, frees=1)
            self.assertEqual(lines[2:4], [f"range 0 1 {bytes_}"] * 2)
            self.assertEqual(lines[4:6], [f"address 0 1 0 1 {bytes_}"] * 2)
            self.assertEqual(lines[6:], ["retain 1", "free 0", "free 1"])

    def test_attributes_as_bare(self):
        def strip(lines):
            return [line.rsplit(" id=", 1)[0] for line in lines]
        arguments = ("init", "malloc:8", "async:8", "fromdefault:8", "attributes:0", "attributes:1", "attributes:2")
        bare, ours = self.lines(*arguments, VPMM_DISABLE=1), self.lines(*arguments)
        self.assertEqual(strip(bare), strip(ours))
        ids = [line.rsplit("=", 1)[1] for line in ours[4:]]
        self.assertEqual(len(set(ids)), 3)

    def test_bad_frees_as_bare(self):
        arguments = ("init", "malloc:8", "freeaddress:0", "freeaddress:4096", "freeasync:0", "freeasync:0", "free:0")
        self.as_bare(*arguments, mallocs=1, frees=1)

    def test_addresses_that_are_no_block_as_bare(self):
        def ask(block, offset=0):
            return f"range:{block}:{offset}", f"address:{block}:{offset}"
        behind = 5 * MIB + 13
        for kind, free in ("malloc", "free"), ("async", "freeasync"):
            arguments = ("init", f"{kind}:5", *ask(0), *ask(0, behind), f"{free}:0", *ask(0), *ask(0, MIB), "retain:0")
            lines, _ = self.as_bare(*arguments, mallocs=1, frees=1)
            self.assertEqual(lines[4], "range 500 0 0")

    def test_old_addresses_of_moved_pages_are_no_block(self):
        lines, told = self.served("init", "async:19", "async:2", "freeasync:0", "async:7", "async:21",
                                  "range:0:15000000", "address:0:15000000", mallocs=4, frees=1, VPMM_EXTENT=1)
        self.assertGreater(told["devices"][0]["moved_bytes"], 0)
        self.assertEqual(lines[-2:], ["range 500 0 0", "address 1 0 0 0 0"])

    def test_info_counts_what_is_reusable(self):
        lines, told = self.as_bare("init", "info", "malloc:64", "free:0", "info", mallocs=1, frees=1)
        self.assertEqual(lines[1], lines[4])
        self.assertGreaterEqual(told["devices"][0]["held_bytes"], 64 * MIB)

    def test_refused_allocations_get_what_the_pool_does_not_use(self):
        for kind in ("pitch:200", "fromdefault:1"):
            with self.subTest(kind=kind):
                lines, told = self.as_bare("init", "malloc:254", "free:0", kind, mallocs=1, frees=1,
                                           VPMM_SIM_BYTES="256M")
                self.assertEqual(lines[-1], kind.split(":")[0] + " 0")
                self.assertGreater(told["devices"][0]["trimmed_bytes"], 0)

    def test_failures_of_our_own_calls_are_not_seen(self):
        arguments = ("malloc:8", "async:8", "free:0", "freeasync:1", "malloc:24", "async:40", "free:2", "free:2",
                     "freeasync:3")
        bare = self.lines("init", *arguments, VPMM_DISABLE=1)
        for name in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuEventCreate",
                     "cuEventRecord", "cuEventQuery", "cuCtxRecordEvent"):
            for nth in ("1:2", "2:2", "1:2:forever", "2:2:forever"):
                with self.subTest(name=name, nth=nth):
                    run = self.run_sim("init", f"fault:{name}:{nth}", *arguments, f"struck:{name}")
                    self.assertEqual((run.status, run.output.splitlines()), (0, bare), run.errors)
                    if nth.startswith("1:"):
                        self.assertIn("struck 1", run.errors)

    def test_absurd_requests_as_bare(self):
        arguments = ("init", "malloc:8", f"malloc:{1 << 30}", f"async:{1 << 30}", "free:0", "malloc:8", "free:1")
        _, told = self.as_bare(*arguments, mallocs=2, frees=2)
        for kind in told["requests"].values():
            self.assertEqual(kind["large"], 1)

    def test_free_that_waits(self):
        arguments = ("init", "malloc:8", "free:0", "malloc:8", "free:1", "free:1")
        self.as_bare(*arguments, mallocs=2, frees=2, VPMM_FREE_SYNC=1)

    def test_capture(self):
        _, told = self.as_bare("init", "malloc:8", "capture", "malloc:8", "free:1", "capturing:8", "end", "free:0",
                               mallocs=2, frees=2)
        self.assertEqual(told["requests"]["cudaMallocAsync"]["capturing"], 1)

    def test_memory_comes_back_after_a_capture(self):
        arguments = ("init", "capture", "malloc:120", "free:0", "end", "malloc:200", "free:1", "malloc:120")
        lines, _ = self.served(*arguments, mallocs=3, frees=2, VPMM_SIM_BYTES="256M")
        self.assertEqual(lines,
                         ["init 0", "capture 0", "malloc 0", "free 0", "end 0", "malloc 0", "free 0", "malloc 0"])

    def test_reset(self):
        arguments = ("init", "malloc:8", "async:8", "reset", "init", "free:0", "malloc:16", "free:2")
        _, told = self.as_bare(*arguments, mallocs=3, frees=1)
        self.assertEqual(told["devices"][0]["live_bytes"], 10 * MIB)

    def test_signal(self):
        path = os.path.join(harness.work, "dump-%p")
        run = self.run_sim("init", "signal", "malloc:8", "signal", "raise", "raise", "free:0", VPMM_DUMP=path)
        self.assertEqual(run.status, 0, run.errors)
        self.assertEqual(run.output.splitlines()[1:4], ["signal other", "malloc 0", "signal other"])
        dumps = [name for name in os.listdir(harness.work) if name.startswith("dump-")]
        self.assertEqual(len(dumps), 1)
        with open(os.path.join(harness.work, dumps[0]), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text.count("[+5]") + text.count("[5]"), 2)

    def test_signals_of_the_program_stay(self):
        for arguments, last, environment in (
                (("own", "init", "malloc:8", "signal", "raise"), ["signal own", "own handler"], {}),
                (("ignore", "init", "malloc:8", "signal", "raise"), ["signal ignored"], {}),
                (("init", "malloc:8", "own", "signal", "raise"), ["signal own", "own handler"], {}),
                (("init", "malloc:8", "signal"), ["signal default"], {"VPMM_DUMP_SIGNAL": "none"})):
            lines, _ = self.served(*arguments, mallocs=1, frees=0, **environment)
            self.assertEqual(lines[2:], last)

    def test_child_of_a_parent_with_a_pool(self):
        arguments = ("init", "malloc:8", "fork:child-", "free:0", "malloc:8", "signal")
        lines = self.lines(*arguments)
        bare = self.lines(*arguments, VPMM_DISABLE=1)
        self.assertEqual(lines[:-1], bare[:-1])
        self.assertIn("child-signal default", lines)
        self.assertEqual((lines[-1], bare[-1]), ("signal other", "signal default"))

    def test_child_keeps_a_handler_that_came_after_ours(self):
        for how, what in ("own", "own"), ("ignore", "ignored"):
            lines, _ = self.served("init", "malloc:8", how, "fork:child-", "signal", mallocs=1, frees=0)
            self.assertEqual(lines[2:], [f"child-signal {what}", "child 0 0", f"signal {what}"])

    def test_statistics_of_children(self):
        served = ("init", "malloc:8")
        for before, after, n_files in (served, (), 1), ((), served, 2):
            folder = os.path.join(harness.work, f"statistics-{n_files}")
            os.mkdir(folder)
            run = self.run_sim(*before, "fork:child-", *after, VPMM_STATS=os.path.join(folder, "%p.json"))
            self.assertEqual((run.status, run.errors), (0, ""))
            self.assertEqual(len(os.listdir(folder)), n_files)
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["devices"][0]["mallocs"], 1)

    def test_child_of_a_parent_without_a_pool(self):
        lines = self.lines("fork:child-", "init", "malloc:8", "attributes:0", "signal")
        self.assertEqual(len(lines), 9)
        for line in lines[2], lines[7]:
            self.assertGreaterEqual(int(line.rsplit("=", 1)[1]), BUFFER_ID_OURS)
        self.assertIn("child-signal other", lines)

    def test_messages(self):
        quiet = self.run_sim("init", "malloc:8", "free:0")
        self.assertEqual(quiet.errors, "")
        self.assertEqual(self.run_sim("init", "malloc:1", VPMM_PAGES="nonsense", **PAGES).errors, "")
        told = self.run_sim("init", "malloc:8", "free:0", "malloc:8", VPMM_PAGES="nonsense").errors.splitlines()
        self.assertEqual(len(told), 1)
        self.assertIn("VPMM_PAGES", told[0])

    def test_statistics(self):
        path = os.path.join(harness.work, "statistics.json")
        run = self.run_sim("init", "malloc:8", "async:8", "async:1", "free:0", f"malloc:{1 << 30}",
                           VPMM_STATS=path, **PAGES)
        self.assertEqual((run.status, run.errors), (0, ""))
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        self.assertEqual(told["program"], "driver-sim")
        device, requests = told["devices"][0], told["requests"]
        self.assertEqual((device["mallocs"], device["frees"], device["trimmed_bytes"]), (2, 1, 0))
        self.assertEqual((requests["cudaMalloc"]["pool"], requests["cudaMalloc"]["large"]), (1, 1))
        self.assertEqual((requests["cudaMallocAsync"]["pool"], requests["cudaMallocAsync"]["small"]), (1, 1))


if __name__ == "__main__":
    harness.main()
