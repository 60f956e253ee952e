# SPDX-License-Identifier: MIT
"""VPMM_TRACE: what programs say that they did, and what their traces show."""
import collections
import os
import signal
import unittest

import harness
import trace_file

MIB = 1 << 20
PAGES = {"VPMM_MIN_SIZE": "page"}  # no blocks share pages
Said = collections.namedtuple("Said", "kind is_async is_done address bytes stream")


def said(output):
    """The lines of the program."""
    rows = []
    for line in output.splitlines():
        kind, form, *numbers = line.split()
        done, address, bytes_, stream = map(int, numbers)
        rows.append(Said(kind, form == "async", bool(done), address, bytes_, stream))
    return rows


def shown(trace):
    """The same of a trace."""
    return [Said(entry.kind, bool(entry.flags & 1), not entry.flags & 2, entry.address, entry.bytes, entry.stream)
            for entry in trace.of("malloc", "free")]


def live_bytes(trace):
    """Bytes of blocks of the pool that are never freed; fails on one given out twice."""
    live = {}
    for entry in trace.of("malloc", "free"):
        if entry.flags & 2:
            continue
        if entry.kind == "free":
            live.pop(entry.address, None)
        else:
            assert entry.address not in live, entry
            live[entry.address] = entry.bytes
    return sum(live.values())


class Recording(unittest.TestCase):
    def scene(self, name, status=0, path=None, **environment):
        path = path or harness.simulated("recorded")
        folder = harness.tempfile.mkdtemp(dir=harness.work)
        self.pattern = os.path.join(folder, "%p.trace")
        run = harness.run_simulated(path, name, **{"VPMM_TRACE": self.pattern, **environment})
        self.assertEqual(run.status, status, run.output + run.errors)
        self.files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        return run

    def traced(self, name, **more):
        run = self.scene(name, **more)
        self.assertEqual(len(self.files), 1)
        trace = trace_file.Trace(self.files[0])
        self.assertEqual(os.path.basename(self.files[0]), f"{trace.header['pid']}.trace")
        return run, trace

    def balanced(self, run, trace):
        """What was held and live at the end, as the statistics have it."""
        device = run.statistics[0]["devices"][0]
        self.assertEqual(trace.sum("grow") - trace.sum("release"), device["held_bytes"])
        self.assertEqual(trace.sum("grow"), device["created_bytes"])
        self.assertEqual(trace.sum("release"), device["released_bytes"])
        self.assertEqual(trace.sum("stitch"), device["moved_bytes"])
        last = trace.of("figures")[-1]
        self.assertEqual((last.address, last.bytes, last.stream),
                         (device["held_bytes"], device["live_bytes"], device["pending_bytes"]))
        paths = collections.Counter(entry.path for entry in trace.of("malloc"))
        self.assertEqual([paths[path] for path in trace_file.PATHS[1:7]],
                         [device[key] for key in ("cache_hits", "habit_hits", "fits", "revives", "stitches", "grows")])
        rungs = collections.Counter(trace_file.RUNGS[entry.flags >> 3] for entry in trace.of("malloc"))
        counted = {key[len("rung_"):]: count for key, count in device.items() if key.startswith("rung_") and count}
        self.assertEqual({rung: count for rung, count in rungs.items() if rung}, counted)
        self.assertEqual(sum(counted.values()), device["mallocs"] - device["cache_hits"])
        return device


class Calls(Recording):
    def test_every_call_is_in_it(self):
        for more in {}, PAGES:
            run, trace = self.traced("calls", **more)
            self.assertEqual(shown(trace), said(run.output))
            self.assertEqual((trace.header["is_ended"], trace.header["dropped"]), (1, 0))
            self.assertEqual(trace.header["program"], "recorded")
            if more:  # the heap's figures have no small blocks
                self.balanced(run, trace)
            self.assertEqual(live_bytes(trace), 3 * MIB)

    def test_who_served_it(self):
        for more, small, last in ({}, ["grow", "grow"], "habit"), (PAGES, ["small", "small"], "cache"):
            _, trace = self.traced("calls", **more)
            self.assertEqual([entry.path for entry in trace.of("malloc")],
                             ["grow", "grow", "cache", "cache", "fit", "fit", "other", "fit", *small, "large", "large",
                              "other", "fit", last])

    def test_requests_count_as_in_the_statistics(self):
        run, trace = self.traced("calls")
        for number, name in enumerate(("cudaMalloc", "cudaMallocAsync")):
            paths = collections.Counter(entry.path for entry in trace.of("malloc") if entry.flags & 1 == number)
            for reason in trace_file.REASONS[1:-1]:
                self.assertEqual(paths[reason], run.statistics[0]["requests"][name][reason], reason)

    def test_the_device_is_that_of_the_block(self):
        _, trace = self.traced("devices", VPMM_SIM_DEVICES="2")
        self.assertEqual([(entry.kind, entry.bytes // MIB, entry.device) for entry in trace.of("malloc", "free")],
                         [("malloc", 4, 1), ("malloc", 6, 1), ("malloc", 8, 0), ("free", 4, 1), ("free", 6, 1), ("free", 8, 0)])

    def test_nothing_is_left_of_a_program_without_the_option(self):
        self.scene("calls", VPMM_TRACE="")
        self.assertEqual(self.files, [])

    def test_a_killed_program_leaves_it(self):
        run, trace = self.traced("killed", status=-signal.SIGKILL)
        self.assertEqual(shown(trace), said(run.output))
        self.assertEqual(trace.header["is_ended"], 0)


    def test_calls_that_take_longer_than_an_entry_can_tell(self):
        """A request counts from when it ended, a free from when it began: both are told exactly."""
        _, trace = self.traced("slow", path=harness.simulated("slow", "-rdynamic"))
        calls = trace.of("malloc", "free")
        self.assertEqual([entry.kind for entry in calls], ["malloc", "free"] * 2)
        longest, long_ns, some_ns = (1 << 32) - 1, 10_000_000_000, 1_000_000
        self.assertTrue(all(entry.duration_ns < some_ns for entry in calls[:2]))
        self.assertEqual([entry.duration_ns for entry in calls[2:]], [longest] * 2)
        self.assertAlmostEqual(calls[2].ns + longest - calls[1].ns, long_ns, delta=some_ns)
        self.assertAlmostEqual(calls[3].ns - calls[1].ns, long_ns, delta=some_ns)


class Threads(Recording):
    def all_is_there(self, trace):
        self.assertEqual(trace.header["dropped"], 0)
        by_thread = collections.Counter((entry.thread, entry.kind) for entry in trace.of("malloc", "free"))
        self.assertEqual(sorted(by_thread.values()), [6000] * 8)
        self.assertEqual(live_bytes(trace), 0)

    def test_calls_of_several(self):
        run, trace = self.traced("threads")
        self.all_is_there(trace)
        self.balanced(run, trace)

    def test_short_ones_share_room(self):
        run, trace = self.traced("short")
        self.balanced(run, trace)
        self.assertEqual(trace.header["dropped"], 0)
        calls = trace.of("malloc", "free")
        self.assertEqual([entry.kind for entry in calls], ["malloc", "free"] * 1000)
        self.assertTrue(all(one.thread == other.thread for one, other in zip(calls[::2], calls[1::2])))
        self.assertGreater(len({entry.thread for entry in calls}), 500)
        self.assertLess(trace.bytes, 1 * MIB)

    def test_one_that_is_cancelled_keeps_nobody_waiting(self):
        run, trace = self.traced("cancelled")
        self.assertEqual(shown(trace), said(run.output))

    def test_calls_after_all_descriptors_were_closed(self):
        run, trace = self.traced("closes")
        self.all_is_there(trace)
        self.balanced(run, trace)

    def test_what_is_too_much_is_counted(self):
        run, trace = self.traced("threads", VPMM_TRACE_MAX="200K")
        self.assertIn(f"{trace.header['dropped']} entries found no room in the trace", run.errors)
        self.assertLessEqual(trace.bytes, 200 << 10)
        self.assertEqual(trace.header["max_bytes"], 200 << 10)
        self.assertGreater(len(trace.entries), 1000)
        self.assertGreater(len(trace.entries) + trace.header["dropped"], 48000)

    def test_figures_once_a_millisecond(self):
        _, trace = self.traced("threads")
        times = [entry.ns for entry in trace.of("figures")]
        self.assertLessEqual(len(times), times[-1] // 1000000 + 2)

    def test_figures_are_of_their_moment(self):
        _, trace = self.traced("moves")
        held = {"grow": 0, "release": 0}
        for entry in trace.entries:
            if entry.kind in held:
                held[entry.kind] += entry.bytes
            elif entry.kind == "figures":
                self.assertEqual(entry.address, held["grow"] - held["release"])


class Heaps(Recording):
    def test_what_they_do_with_memory(self):
        run, trace = self.traced("moves")
        device = self.balanced(run, trace)
        self.assertGreater(device["moved_bytes"], 0)
        self.assertGreater(device["released_bytes"], 0)
        self.assertGreater(trace.sum("unmap"), trace.sum("release"))
        self.assertEqual(shown(trace), said(run.output))

    def test_waits(self):
        _, trace = self.traced("calls", VPMM_FREE_SYNC=1, **PAGES)
        served = [entry for entry in trace.of("free") if entry.path == "pool" and not entry.flags & 1]
        self.assertEqual(len(trace.of("host_wait")), len(served))

    def test_memory_that_its_context_takes_along(self):
        run, trace = self.traced("dies")
        self.assertEqual(live_bytes(trace), 4 * MIB)
        self.balanced(run, trace)


class Files(Recording):
    def test_a_forked_child_has_none(self):
        run, trace = self.traced("forks")
        self.assertEqual(shown(trace), said(run.output))

    def test_one_that_cannot_be_opened(self):
        run = self.scene("calls", VPMM_TRACE="/nowhere/x.trace")
        lines = [line for line in run.errors.splitlines() if "trace" in line]
        self.assertEqual(len(lines), 1, run.errors)
        self.assertIn("warning: no trace: /nowhere/x.trace: no such folder", lines[0])

    def test_a_bare_word_is_no_path(self):
        run = self.scene("calls", VPMM_TRACE="yes")
        self.assertIn("VPMM_TRACE=yes is not accepted", run.errors)


if __name__ == "__main__":
    harness.main()
