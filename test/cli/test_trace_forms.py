# SPDX-License-Identifier: MIT
"""`vpmm trace convert`: what it writes is what others read."""
import csv
import gzip
import json
import pickle
import pickletools
from collections import defaultdict

import native_trace as native
from tracing import NAMES, TRACES, Case, main, run

# What the unpickler of memory_viz knows.
VIEWER_OPCODES = set("ehJKM}](u.aqXNGtldsjr") | {"\x80", "\x8a", "\x86", "\x85", "\x87", "\x88", "\x89", "\x8c", "\x94", "\x95", ")"}


def lines_of(path):
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def requests_of(path):
    return [line for line in lines_of(path).splitlines() if line[0] in "AF"]


class RoundTrips(Case):
    def test_csv_is_the_same_line_by_line(self):
        for name in NAMES:
            source = TRACES / f"{name}.csv.gz"
            self.assertEqual(lines_of(self.convert(source, "x.csv")), lines_of(source).replace(",p\n", ",a\n"), name)

    def test_through_our_own_form(self):
        for name in NAMES:
            source = TRACES / f"{name}.csv.gz"
            done = run("convert", source, "-o", self.folder / "x.vpmm")
            self.assertEqual(done.returncode, 0)
            self.assertEqual(b"kernels and events" in done.stderr, name in ("pipeline", "side-streams"))
            self.assertEqual(requests_of(self.convert(self.folder / "x.vpmm", "x.csv")),
                             [line.replace(",p", ",a") for line in requests_of(source)], name)

    def test_our_own_form_keeps_every_entry(self):
        entries = [native.entry(native.MALLOC, number, 4096 * number, number, stream=number % 7, path=number % 40,
                                device=number % 3, flags=native.IS_ASYNC, duration_ns=number) for number in range(1, 900)]
        source = native.write(self.folder / "a.vpmm", entries[::2], entries[1::2])
        again = self.convert(source, "b.vpmm").read_bytes()
        for entry in entries:
            self.assertIn(entry, again)
        self.assertEqual(self.convert(self.folder / "b.vpmm", "c.vpmm").read_bytes(), again)

    def test_rmm(self):
        source = TRACES / "jax.csv.gz"
        log = self.convert(source, "x.log")
        rows = list(csv.DictReader(log.read_text().splitlines()))
        self.assertEqual(list(rows[0]), ["Thread", "Time", "Action", "Pointer", "Size", "Stream"])
        self.assertEqual((rows[0]["Time"], rows[0]["Action"], rows[0]["Pointer"], rows[0]["Size"]),
                         ("00:00:01.985279", "allocate", "0x7f711f800000", "25344"))
        live = {}
        for row in rows:
            if row["Action"] == "allocate":
                live[row["Pointer"]] = row["Size"]
            else:
                self.assertEqual((row["Action"], row["Size"]), ("free", live.pop(row["Pointer"])))
        self.assertEqual([line.split(",")[:3] for line in requests_of(self.convert(log, "x.csv"))],
                         [line.split(",")[:3] for line in requests_of(source)])

    def test_standard_input_and_output(self):
        data = (TRACES / "table.csv.gz").read_bytes()
        ours = self.succeed("convert", "-", "-o", "-", "--to", "vpmm", data=data)
        self.assertEqual(self.succeed("convert", "-", "-o", "-", "--to", "csv", data=ours), gzip.decompress(data))
        squeezed = self.convert(TRACES / "table.csv.gz", "x.vpmm.gz")
        self.assertEqual(gzip.decompress(squeezed.read_bytes()), ours)
        self.assertEqual(self.succeed("convert", squeezed, "-o", "-", "--to", "csv"), gzip.decompress(data))


class LeftOut(Case):
    """A block whose free is missing, and whose address is served again by a request that is left out."""

    def requests(self, *words):
        entries = [native.entry(native.MALLOC, 1, 0x1000, 4096, stream=7, flags=native.IS_ASYNC),
                   native.entry(native.MALLOC, 2, 0x1000, 100, stream=7, flags=native.IS_ASYNC, device=1),
                   native.entry(native.FREE, 3, 0x1000, 100, stream=7, flags=native.IS_ASYNC, device=1)]
        source = native.write(self.folder / "x.vpmm", entries)
        direct = requests_of(self.convert(source, "direct.csv", *words))
        self.assertEqual(requests_of(self.convert(self.convert(source, "again.vpmm", *words), "again.csv")), direct)
        return direct

    def test_the_block_ends_there(self):
        ended = ["A,1000,4096,7,1,a", "F,1000,,7,2,a"]
        for words in (["--min-size", "1K"], ["--device", "0"]):
            with self.subTest(words):
                self.assertEqual(self.requests(*words), ended)
        self.assertEqual(self.requests(), ended + ["A,1000,100,7,2,a", "F,1000,,7,3,a"])
        self.assertEqual(self.requests("--device", "1"), ["A,1000,100,7,2,a", "F,1000,,7,3,a"])


class Snapshot(Case):
    def replay(self, events):
        """What is live after the events, as memory_viz finds it; each block lies in a segment."""
        live, segments = {}, {}
        for event in events:
            action, address, size = event["action"], event.get("addr"), event["size"]
            if action == "segment_alloc":
                self.assertNotIn(address, segments)
                segments[address] = size
            elif action == "alloc":
                self.assertEqual(segments[address], size)
                live[address] = size
            elif action == "free_completed":
                self.assertEqual(live.pop(address), size)
            elif action == "segment_free":
                self.assertEqual(segments.pop(address), size)
            else:
                self.assertEqual(action, "free_requested")
        self.assertEqual(live, segments)
        return live

    def test_it_holds_each_request(self):
        snapshot = pickle.loads(self.convert(TRACES / "jax.csv.gz", "x.pickle").read_bytes())
        self.assertEqual(set(snapshot), {"segments", "device_traces", "allocator_settings"})
        events, = snapshot["device_traces"]
        lines = requests_of(TRACES / "jax.csv.gz")
        allocations = [(event["addr"], event["size"], event["stream"], event["time_us"]) for event in events
                       if event["action"] == "alloc"]
        self.assertEqual(allocations, [(int(address, 16), int(size), int(stream, 16), int(us)) for _, address, size, stream, us, _
                                       in (line.split(",") for line in lines if line[0] == "A")])
        live = self.replay(events)
        self.assertEqual({segment["address"]: segment["total_size"] for segment in snapshot["segments"]}, live)
        for segment in snapshot["segments"]:
            block, = segment["blocks"]
            self.assertEqual((block["address"], block["size"], block["state"]),
                             (segment["address"], segment["total_size"], "active_allocated"))
            self.assertEqual((segment["device"], segment["frames"], block["frames"]), (0, [], []))

    def test_each_device_has_its_events(self):
        first = [native.entry(native.MALLOC, number, 4096 * (number + 1), 1 << number, device=number % 3)
                 for number in range(40)]
        first.append(native.entry(native.MALLOC, 50, 0, 77, flags=native.IS_FAILED, device=1))
        source = native.write(self.folder / "x.vpmm", first)
        snapshot = pickle.loads(self.convert(source, "x.pkl").read_bytes())
        sizes = [[event["size"] for event in trace if event["action"] == "alloc"] for trace in snapshot["device_traces"]]
        self.assertEqual(sizes, [[1 << number for number in range(device, 40, 3)] for device in range(3)])
        oom, = [event for event in snapshot["device_traces"][1] if event["action"] == "oom"]
        self.assertEqual((oom["size"], oom["device_free"]), (77, 0))
        by_device = defaultdict(int)
        for segment in snapshot["segments"]:
            by_device[segment["device"]] += 1
        self.assertEqual(by_device, {0: 14, 1: 13, 2: 13})

    def test_a_request_for_nothing_is_none_that_failed(self):
        log = self.folder / "x.log"
        log.write_text("1,10:00:00.000000,allocate,0x0,0,0x0\n1,10:00:00.000001,allocate failure,0x0,9,0x0\n")
        (oom,), = pickle.loads(self.convert(log, "x.pickle").read_bytes())["device_traces"]
        self.assertEqual((oom["action"], oom["size"]), ("oom", 9))

    def test_the_viewer_can_compare_each_size(self):
        """What has more than 63 bits is no number to it, and it draws nothing at all."""
        source = native.write(self.folder / "x.vpmm", [native.entry(native.MALLOC, 1, 0, (1 << 64) - 1, flags=native.IS_FAILED)])
        (oom,), = pickle.loads(self.convert(source, "x.pickle").read_bytes())["device_traces"]
        self.assertEqual((oom["action"], oom["size"]), ("oom", (1 << 63) - 1))

    def test_only_what_the_viewer_knows_is_in_it(self):
        data = self.convert(TRACES / "cupy.csv.gz", "x.pickle").read_bytes()
        used = {code.code for code, _, _ in pickletools.genops(data)}
        self.assertLessEqual(used, VIEWER_OPCODES | {"("})

    def test_a_trace_of_nothing(self):
        snapshot = pickle.loads(self.convert(native.write(self.folder / "x.vpmm"), "x.pickle").read_bytes())
        self.assertEqual((snapshot["device_traces"], snapshot["segments"]), ([[]], []))


class Chrome(Case):
    def events(self, source, *words):
        return json.loads(self.convert(source, "x.json", *words).read_text())["traceEvents"]

    def test_lives_begin_and_end(self):
        begun = {}
        live = 0
        for event in self.events(TRACES / "jax.csv.gz"):
            if event["ph"] == "b":
                self.assertNotIn(event["id"], begun)
                begun[event["id"]] = event
                live += event["args"]["bytes"]
            elif event["ph"] == "e":
                first = begun.pop(event["id"])
                self.assertEqual((first["name"], first["cat"]), (event["name"], event["cat"]))
                live -= event["args"]["bytes"]
            elif event["ph"] == "C":
                self.assertEqual((event["name"], event["args"]), ("device 0: live", {"bytes": live}))
        self.assertEqual(len(begun), 7)

    def test_calls_and_figures(self):
        first = [native.entry(native.GROW, 1, 64, 1 << 21, duration_ns=1500),
                 native.entry(native.MALLOC, 0.5, 64, 1 << 20, path=native.BY_GROW, duration_ns=2500),
                 native.entry(native.FIGURES, 9, 3 << 20, 1 << 20, stream=5 << 20),
                 native.entry(native.RELEASE, 10, 64, 1 << 20)]
        source = native.write(self.folder / "a.vpmm", first, program=b'a\\"\n\xff')
        events = self.events(source)
        self.assertEqual(events[0]["args"], {"name": 'a\\"?\xff'})
        calls = [(event["name"], event["ts"], event["dur"], event["tid"]) for event in events if event["ph"] == "X"]
        self.assertEqual(calls, [("grow", 1, 1.5, 4711), ("cudaMalloc", 0.5, 2.5, 4711)])
        counters = [(event["name"], event["args"]["bytes"] >> 20) for event in events if event["ph"] == "C"]
        self.assertEqual(counters, [("device 0: held", 2), ("device 0: live", 1), ("device 0: held", 3), ("device 0: pending", 5),
                                    ("device 0: held", 2)])

    def test_small_requests_can_be_left_out(self):
        events = self.events(TRACES / "generate.csv.gz", "--min-size", "2M")
        self.assertEqual(sum(event["ph"] == "b" for event in events), 24746)
        self.assertGreaterEqual(min(event["args"]["bytes"] for event in events if event["ph"] == "b"), 2 << 20)

    def test_a_trace_of_nothing(self):
        self.assertEqual(len(self.events(native.write(self.folder / "x.vpmm"))), 1)


if __name__ == "__main__":
    main()
