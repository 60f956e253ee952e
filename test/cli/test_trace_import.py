# SPDX-License-Identifier: MIT
"""PyTorch's memory snapshots as input: what they say, and that nothing in them is ever run."""
import json
import os
import pickle
import pty
import re
import subprocess

from tracing import TRACES, Case, arguments, main

START = 1_700_000_000_000_000


def event(action, us, address, size, stream=0):
    where = {"device_free": address} if action == "oom" else {"addr": address}
    return {"action": action, **where, "size": size, "stream": stream, "time_us": START + us,
            "frames": [{"name": "forward", "filename": "model.py", "line": 3}]}


def segment(address, *blocks, device=0, stream=0):
    """`blocks`: size and state."""
    return {"device": device, "address": address, "total_size": sum(size for size, _ in blocks), "stream": stream,
            "segment_type": "large", "blocks": [{"size": size, "requested_size": size - 24, "state": state}
                                                for size, state in blocks]}


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Import(Case):
    def csv(self, snapshot):
        data = pickle.dumps(snapshot)
        return self.output("convert", "-", "-o", "-", "--to", "csv", data=data).decode().splitlines()

    def summary(self, snapshot, *words):
        return json.loads(self.succeed("summary", "-", "--json", *words, data=pickle.dumps(snapshot)))

    def test_a_block_is_freed_when_that_is_asked_for(self):
        self.assertEqual(self.csv({"segments": [], "device_traces": [[
            event("segment_alloc", 0, 0x1000, 512), event("alloc", 0, 0x1000, 500, 7),
            event("free_requested", 3, 0x1000, 500, 7), event("free_completed", 9, 0x1000, 500, 7),
            event("alloc", 11, 0x1000, 400), event("free_completed", 12, 0x1000, 400), event("snapshot", 13, 0, 0)]]}),
            ["A,1000,500,7,0,a", "F,1000,,7,3,a", "A,1000,400,0,11,a", "F,1000,,0,12,a"])

    def test_what_was_there_before_the_history(self):
        """0x1000 is freed in it, 0x2000 never; both were allocated before it began, as was their memory."""
        snapshot = {"segments": [segment(0x1000, (4096, "inactive"), (4096, "active_allocated"), stream=3),
                                 segment(0x9000, (512, "active_allocated"))],
                    "device_traces": [[event("free_requested", 5, 0x1000, 100, 3), event("free_completed", 6, 0x1000, 100, 3),
                                       event("segment_alloc", 7, 0x9000, 512), event("alloc", 8, 0x9000, 500)]]}
        self.assertEqual(self.csv(snapshot), ["A,2000,4072,3,0,a", "A,1000,100,3,0,a", "F,1000,,3,0,a", "A,9000,500,0,3,a"])
        found = self.summary(snapshot)
        self.assertEqual((found["held_peak"]["bytes"], found["at_end"]["bytes"]), (8192 + 512, 4072 + 500))

    def test_segments_that_grow_and_shrink_in_parts(self):
        snapshot = {"segments": [segment(0x1000, (4096, "inactive"))],
                    "device_traces": [[event("segment_map", 1, 0x2000, 8192), event("segment_unmap", 2, 0x3000, 4096),
                                       event("segment_unmap", 3, 0x2000, 4096), event("segment_unmap", 4, 0x8000, 1024)]]}
        found = self.summary(snapshot)
        self.assertEqual(found["held_peak"]["bytes"], 4096 + 1024 + 8192)
        self.assertEqual(found["pool"]["release"], {"times": 3, "bytes": 8192 + 1024})

    def test_devices_are_merged_by_time(self):
        traces = [[event("alloc", 1, 0x10, 1), event("alloc", 5, 0x20, 2)], [], [event("alloc", 3, 0x30, 4)]]
        self.assertEqual([line.split(",")[1] for line in self.csv({"segments": [], "device_traces": traces})], ["10", "30", "20"])
        found = self.summary({"segments": [], "device_traces": traces}, "--device", "2")
        self.assertEqual((found["mallocs"], found["live_peak"]["bytes"]), (1, 4))

    def test_what_ran_out_of_memory(self):
        found = self.summary({"segments": [], "device_traces": [[event("oom", 1, 12345, (1 << 64) - 1)]]})
        self.assertEqual((found["failed"], found["live_peak"]["bytes"]), (1, 0))

    def test_segments_alone(self):
        self.assertEqual(self.csv([segment(0x1000, (512, "active_allocated"))]), ["A,1000,488,0,0,a"])

    def test_early_forms_have_no_time(self):
        events = [{"action": action, "addr": 64, "size": 8, "stream": 0} for action in ("alloc", "free_requested", "alloc")]
        self.assertEqual([line.split(",")[4] for line in self.csv({"segments": [], "device_traces": [events]})], ["0", "1", "2"])

    def test_ours_come_back(self):
        source = TRACES / "jax.csv.gz"
        snapshot = self.convert(source, "x.pickle")
        lines = self.output("convert", snapshot, "-o", "-", "--to", "csv").decode().splitlines()
        first = json.loads(self.succeed("summary", source, "--json"))
        again = json.loads(self.succeed("summary", snapshot, "--json"))
        self.assertEqual(len(lines), first["mallocs"] + first["frees"])
        for key in ("sizes", "mallocs", "frees", "lifetimes", "at_end"):
            self.assertEqual(again[key], first[key], key)
        self.assertEqual(again["live_peak"]["bytes"], first["live_peak"]["bytes"])


    def test_times_of_some_events_alone(self):
        first = {"action": "alloc", "addr": 64, "size": 8, "stream": 0}
        for traces in ([[first, event("alloc", 1, 0x1000, 8)]], [[first], [event("alloc", 1, 0x1000, 8)]]):
            line = self.refuse("summary", "-", data=pickle.dumps({"segments": [], "device_traces": traces}))
            self.assertRegex(line, r"device \d: the times of its events are too far apart, or only some have one")

    def test_times_as_far_apart_as_a_trace_can_tell(self):
        events = [{"action": "alloc", "addr": us, "size": 8, "stream": 0, "time_us": us} for us in (5, 4 + (1 << 60) // 1000)]
        self.assertEqual(self.csv({"segments": [], "device_traces": [events]})[1].split(",")[4], str((1 << 60) // 1000 - 1))


class Hostile(Case):
    def refused(self, data):
        line = self.refuse("summary", "-", data=data)
        self.assertTrue(line.startswith("standard input: not a snapshot of PyTorch"), line)
        self.assertLess(len(line), 256)
        return line

    def test_nothing_of_it_is_run(self):
        made = self.folder / "made"
        for protocol in range(2, 6):
            for data in (Evil(made), {"segments": [Evil(made)]}, {"segments": [], "device_traces": [[Evil(made)]]}):
                self.assertIn("nothing of it was run", self.refused(pickle.dumps(data, protocol)))
        self.assertFalse(made.exists())

    def test_other_ways_to_name_things(self):
        for data in (b"\x80\x02cos\nsystem\n.", b"\x80\x02(S'x'\nios\nsystem\n.", b"\x80\x02\x82\x01.", b"\x80\x02K\x01Q.",
                     b"\x80\x04\x8c\x02os\x8c\x06system\x93.", b"\x80\x05\x97."):
            self.refused(data)

    def test_what_is_no_whole_pickle(self):
        whole = pickle.dumps({"segments": [segment(0x1000, (512, "active_allocated"))], "device_traces": []}, 2)
        self.succeed("summary", "-", data=whole)
        for length in range(2, len(whole), 29):
            self.refused(whole[:length])

    def test_values_that_cannot_be(self):
        good = event("alloc", 1, 64, 8)
        for key, value in (("addr", -1), ("addr", 1 << 64), ("addr", "64"), ("addr", None), ("size", 1 << 60), ("size", 2.5),
                           ("size", True), ("stream", []), ("time_us", -5), ("time_us", 1 << 60), ("action", 5)):
            line = self.refused(pickle.dumps({"device_traces": [[good, dict(good, **{key: value})]]}))
            self.assertIn("device 0, event 1", line)
            self.assertIn(f"'{key}'", line)
        for snapshot in (5, None, "text", {}, {"device_traces": 5}, {"device_traces": [5]}, {"device_traces": [[5]]},
                         {"segments": [5]}, {"segments": {}}, {"segments": [{"device": 255}]}, {"device_traces": [[]] * 256},
                         {"segments": [dict(segment(64, (8, "inactive")), blocks=[5])]}):
            self.refused(pickle.dumps(snapshot))

    def test_without_python_it_says_so(self):
        path = self.folder / "x.pickle"
        path.write_bytes(pickle.dumps({"segments": []}))
        done = subprocess.run([arguments.program, "trace", "summary", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={"PATH": str(self.folder)}, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"takes python3 to import", done.stderr)

    def test_a_terminal_sees_how_far_it_is(self):
        """By a python3 that has read half of it and waits for a word of ours, and then fails."""
        path, python, gate = (self.folder / name for name in ("x.pickle", "python3", "gate"))
        path.write_bytes(pickle.dumps(["x" * 10000]))
        python.write_text(f"#!/bin/sh\nhead -c {path.stat().st_size // 2} >/dev/null\nread word <{gate}\nexit 2\n")
        python.chmod(0o755)
        os.mkfifo(gate)
        master, slave = pty.openpty()
        with subprocess.Popen([arguments.program, "trace", "summary", path], stdout=slave, stderr=slave, stdin=slave,
                              env={"PATH": f"{self.folder}:/usr/bin:/bin", "TERM": "xterm"}) as command:
            os.close(slave)
            seen = b""
            while not re.search(rb"importing \[#{19,20}\.{20,21}\]  (49|50)%", seen):
                seen += os.read(master, 4096)
            gate.write_text("go on\n")
            try:
                while b"not a snapshot" not in seen:
                    seen += os.read(master, 4096)
            finally:
                os.close(master)
        self.assertEqual(command.returncode, 2)


if __name__ == "__main__":
    main()
