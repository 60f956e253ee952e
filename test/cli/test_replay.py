#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vpmm replay: figures of small traces are those worked out by hand, the recorded traces complete, queued work and waits are
followed, and bad arguments and files are refused in a line."""
import csv
import gzip
import json
import pathlib
import struct
import subprocess
import tempfile

import replaying
from replaying import MIB, SMALL, TOO_LARGE, Case, run, vpmm

REAL_TIME = {"total_ns", "own_ns", "last_malloc_ns", "p50_ns", "p99_ns", "max_ns"}
# Nanoseconds a handle of 2 MiB, and a call, on an NVIDIA H200 with driver 580.
HANDLE_PRICES = {"create": 7000, "map": 500, "access": 20000, "unmap": 14000, "release": 9000}
CALL_PRICES = {"reserve": 4000, "record": 140, "record_context": 180, "query": 160, "stream_wait": 120,
               "host_wait": 160, "stream_facts": 33, "stream_captures": 12, "context": 8}


class Figures(Case):
    def test_of_a_small_trace(self):
        replays = self.replays(SMALL, "--find-limit")
        self.assertEqual((replays["on"], replays["mallocs"], replays["frees"]), ("sim", 3, 1))
        self.assertEqual(replays["smallest_limit_bytes"], 6 * MIB)
        replay, = replays["replays"]
        self.assertEqual((replay["through"], replay["page_bytes"], len(replay["passes"])), ("pool", 2 * MIB, 2))
        for figures in replay["passes"]:
            self.assertEqual((figures["calls"], figures["refused"]), (4, 0))
            self.assertEqual((figures["live_peak_bytes"], figures["held_peak_bytes"]), (6 * MIB, 6 * MIB))
            self.assertEqual(figures["host_waits"], 0)
        self.assertEqual([live for _, live, _ in replay["over_time"]], [3 * MIB, 5 * MIB, 2 * MIB, 6 * MIB])
        self.assertEqual([ns for ns, _, _ in replay["over_time"]], [0, 1000, 2000, 3000])

    def test_in_words(self):
        result = vpmm("--passes", "1", "--find-limit", "-", trace=SMALL)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^live peak +6 MiB$")
        self.assertRegex(result.stdout, r"(?m)^held peak +6 MiB$")
        self.assertRegex(result.stdout, r"(?m)^held/peak +1\.000$")
        self.assertRegex(result.stdout, r"(?m)^smallest limit .*: 6 MiB \(6291456 bytes\), 1\.000 of the live peak$")
        self.assertIn("3 mallocs, 1 frees", result.stdout)
        self.assertIn("(no GPU: ", result.stdout)

    def test_a_page_of_another_size(self):
        """What is less than a page shares one, blocks of half a page apart from larger ones, unless memory is short."""
        figures = self.one_pass(SMALL, "--page-size", "4M")
        self.assertEqual((figures["held_peak_bytes"], figures["parts"]), (12 * MIB, 2))
        self.assertEqual(self.replays(SMALL, "--page-size", "4M", "--find-limit")["smallest_limit_bytes"], 8 * MIB)

    def test_modelled_time_is_calls_times_prices(self):
        figures = self.one_pass(f"A,1000,{2 * MIB},10,0,a\n"
                                f"A,2000,{6 * MIB},20,10,s\n"
                                "F,1000,,10,20,a\n"
                                "F,2000,,20,30,s\n"
                                f"A,3000,{10 * MIB},20,40,a\n", "--extent", "1")
        kinds = figures["by_kind"]
        expected = sum(ns * kinds[name]["handles"] for name, ns in HANDLE_PRICES.items())
        expected += sum(ns * kinds[name]["calls"] for name, ns in CALL_PRICES.items())
        self.assertEqual(figures["driver_ns"], expected)
        self.assertGreaterEqual(kinds["access"]["handles"], 5)
        self.assertEqual(kinds["record_context"]["calls"], 1)
        self.assertEqual(figures["driver_calls"], sum(kind["calls"] for kind in kinds.values()))
        self.assertEqual((figures["calls"], figures["live_peak_bytes"], figures["held_peak_bytes"]),
                         (5, 10 * MIB, 10 * MIB))

    def test_small_requests_are_left_out(self):
        trace = f"A,1000,{2 * MIB},10,0,a\nA,2000,4096,10,1,a\nF,2000,,10,2,a\n"
        replays = self.replays(trace, "--passes", "1", "--min-size", "2M")
        self.assertEqual((replays["mallocs"], replays["frees"], replays["left_out"]["small"]), (1, 0, 1))
        self.assertEqual(self.one_pass(trace, "--min-size", "4K")["calls"], 3)

    def test_small_requests_share_a_page(self):
        """Of streams and of cudaMalloc, each its own."""
        mallocs = [f"A,{1000 + i},{4096 * (1 + i % 3)},{i % 2 * 16:x},{i},{'as'[i % 2]}" for i in range(40)]
        frees = [f"F,{1000 + i},,{i % 2 * 16:x},{100 + i},{'as'[i % 2]}" for i in range(40)]
        figures = self.one_pass("\n".join(mallocs + frees))
        self.assertEqual((figures["calls"], figures["parts"], figures["grows"]), (80, 40, 2))
        self.assertEqual(figures["held_peak_bytes"], 4 * MIB)

    def test_the_name_of_a_file_is_told_whole(self):
        """However long it is, and in whatever letters."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, *["目录" * 30] * 12, "\U0001f600.csv")
            path.parent.mkdir(parents=True)
            path.write_text(SMALL)
            result = vpmm("--json", "--on", "sim", str(path))
        self.assertEqual((result.returncode, json.loads(result.stdout)["trace"]), (0, str(path)))

    def test_an_empty_trace(self):
        replays = self.replays("# nothing\n\n" + "# A\n", "--find-limit")
        self.assertEqual(replays["replays"][0]["passes"][0]["calls"], 0)
        self.assertEqual(replays["smallest_limit_bytes"], 0)

    def test_over_time_shows_the_most_until_the_next_point(self):
        """Whatever is queued between the requests."""
        lines, live, at = [], 0, []
        for i in range(7000):
            lines.append(f"K,10,{10 * i},1")
            size = (1 + i % 11) * 2 * MIB
            lines.append(f"A,{i + 1:x}000,{size},10,{10 * i + 5},a" if i % 2 == 0 else f"F,{i:x}000,,10,{10 * i + 5},a")
            live = size if i % 2 == 0 else 0
            at.append((10 * i + 5, live))
        points = self.replays("\n".join(lines) + "\n", "--passes", "1")["replays"][0]["over_time"]
        self.assertTrue(1024 <= len(points) <= 2048)
        starts = [ns // 1000 for ns, _, _ in points]
        for start, end, (_, found, _) in zip(starts, starts[1:] + [10 * 7000], points):
            self.assertEqual(found, max(bytes_ for us, bytes_ in at if start <= us < end), start)

    def test_over_time_is_bounded_and_keeps_the_peaks(self):
        lines = []
        for i in range(5000):
            lines.append(f"A,{i + 1:x}000,{(1 + i % 7) * 2 * MIB},10,{2 * i},a")
            lines.append(f"F,{i + 1:x}000,,10,{2 * i + 1},a")
        replay = self.replays("\n".join(lines) + "\n", "--passes", "1")["replays"][0]
        points = replay["over_time"]
        self.assertLessEqual(len(points), 2048)
        self.assertGreater(len(points), 1000)
        self.assertEqual(max(live for _, live, _ in points), replay["live_peak_bytes"])
        self.assertEqual(max(held for _, _, held in points), replay["held_peak_bytes"])
        self.assertEqual(points, sorted(points, key=lambda point: point[0]))


class Recorded(Case):
    def test_the_same_twice(self):
        runs = [self.replays(gzip.decompress((replaying.arguments.traces / "jax.csv.gz").read_bytes()).decode(), "--passes", "3")
                for _ in range(2)]
        first, second = (run["replays"][0]["passes"] for run in runs)
        self.assertEqual(len(first), 3)
        for one, other in zip(first, second):
            self.assertEqual({name: one[name] for name in one if name not in REAL_TIME},
                             {name: other[name] for name in other if name not in REAL_TIME})
            self.assertEqual((one["calls"], one["live_peak_bytes"], one["refused"]), (4729, 1222822664, 0))
            ways = ("parts", "cache_hits", "habit_hits", "fits", "revives", "stitches", "grows")
            self.assertGreaterEqual(sum(one[way] for way in ways), one["parts"] + 2114)

    def recount(self, path):
        """Mallocs, frees and the most live, by the lines."""
        blocks, live, peak, mallocs, frees = {}, 0, 0, 0, 0
        with gzip.open(path, "rt", encoding="ascii") as file:
            for row in csv.reader(line for line in file if line.startswith(("A", "F"))):
                if row[0] == "A" and int(row[2]) > 0:
                    blocks[row[1]] = int(row[2])
                    live, mallocs = live + int(row[2]), mallocs + 1
                    peak = max(peak, live)
                elif row[0] == "F" and row[1] in blocks:
                    live, frees = live - blocks.pop(row[1]), frees + 1
        return mallocs, frees, peak

    def test_all_complete_and_hold_little_more_than_is_live(self):
        paths = sorted(replaying.arguments.traces.glob("*.csv.gz"))
        self.assertEqual(len(paths), 11)
        for path in paths:
            with self.subTest(path.name):
                result = vpmm("--json", "--passes", "1", str(path))
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                replays = json.loads(result.stdout)
                mallocs, frees, peak = self.recount(path)
                figures = replays["replays"][0]["passes"][0]
                self.assertEqual((replays["mallocs"], replays["frees"]), (mallocs, frees))
                self.assertEqual((figures["calls"], figures["refused"]), (mallocs + frees, 0))
                self.assertEqual(figures["live_peak_bytes"], peak)
                self.assertGreaterEqual(figures["held_peak_bytes"], peak)
                # Where kernels were recorded, what is freed behind them is in use for longer.
                if replays["kernels"] == 0:
                    self.assertLess(figures["held_peak_bytes"], 1.2 * peak)

    def test_the_smallest_limit_is_one(self):
        for name in ("jax", "table"):
            with self.subTest(name):
                self.check_smallest_limit(str(replaying.arguments.traces / f"{name}.csv.gz"))

    def check_smallest_limit(self, path):
        options = ("--json", "--passes", "1")
        limit = json.loads(vpmm(*options, "--find-limit", path).stdout)["smallest_limit_bytes"]
        enough, less = (vpmm(*options, "--limit", str(bytes_), path) for bytes_ in (limit, limit - 2 * MIB))
        self.assertEqual((enough.returncode, enough.stderr), (0, ""))
        replay = json.loads(enough.stdout)["replays"][0]
        self.assertEqual(replay["limit_bytes"], limit)
        self.assertLessEqual(replay["held_peak_bytes"], limit)
        self.assertEqual(less.returncode, 1)
        self.assertRegex(less.stderr, r"\Avpmm replay: through pool, \d+ requests? .* the limit\n\Z")


class Forms(Case):
    def test_every_form_of_a_trace_replays_alike(self):
        with tempfile.TemporaryDirectory() as folder:
            given = pathlib.Path(folder, "given.csv")
            given.write_text(SMALL, encoding="ascii")
            for name in ("again.csv", "again.csv.gz", "native.vpmm", "rmm.log", "snapshot.pickle"):
                with self.subTest(name):
                    path = str(given.with_name(name))
                    subprocess.run([replaying.arguments.vpmm, "trace", "convert", str(given), "-o", path], check=True, timeout=60)
                    result = vpmm("--json", path)
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                    for figures in json.loads(result.stdout)["replays"][0]["passes"]:
                        self.assertEqual((figures["calls"], figures["live_peak_bytes"], figures["held_peak_bytes"]),
                                         (4, 6 * MIB, 6 * MIB))


class Native(Case):
    """A trace of the library's own form, by the layout of src/lib/recorder/format.h."""
    MALLOC, FREE, GROW = 1, 2, 3
    IS_ASYNC, IS_FAILED = 1, 2

    @staticmethod
    def entry(ns, kind, address, n_bytes=0, flags=IS_ASYNC, device=0, stream=7):
        return struct.pack("<QIBBBBQQQ", ns, 0, kind, 0, device, flags, address, n_bytes, stream)

    def replayed(self, entries, *options):
        head = struct.pack("<8sIIIIQQQQQII64s32s", b"VPMMTRC\n", 1, 4096, 16384, 40, 4711, 0, 0, 1, 0, 1, 0, b"program", b"0.1.0")
        chunk = struct.pack("<IIQ", 0x4B4E4843, len(entries), 4711).ljust(64, b"\0") + b"".join(entries)
        with tempfile.NamedTemporaryFile() as file:
            file.write(head.ljust(4096, b"\0") + chunk.ljust(16384, b"\0"))
            file.flush()
            result = vpmm("--json", *options, file.name)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def test_what_failed_and_what_is_not_a_request_is_left_out(self):
        replays = self.replayed([
            self.entry(10, self.MALLOC, 0x1000, 3 * MIB), self.entry(20, self.GROW, 0x1000, 4 * MIB),
            self.entry(30, self.MALLOC, 0, 8 * MIB, flags=self.IS_ASYNC | self.IS_FAILED),
            self.entry(40, self.MALLOC, 0x2000, 2 * MIB, flags=0, stream=0), self.entry(50, self.FREE, 0x9000),
            self.entry(55, self.FREE, 0), self.entry(60, self.FREE, 0x1000)])
        self.assertEqual(replays["left_out"], {"small": 0, "failed": 1, "elsewhere": 0, "unmatched": 1})
        figures = replays["replays"][0]["passes"][0]
        self.assertEqual((figures["calls"], figures["live_peak_bytes"], figures["held_peak_bytes"]), (3, 5 * MIB, 6 * MIB))
        self.assertEqual([ns for ns, _, _ in replays["replays"][0]["over_time"]], [0, 30, 50])

    def test_a_free_that_failed_leaves_its_block(self):
        replays = self.replayed([
            self.entry(10, self.MALLOC, 0x1000, 2 * MIB), self.entry(20, self.FREE, 0x1000, flags=self.IS_ASYNC | self.IS_FAILED),
            self.entry(30, self.MALLOC, 0x2000, 4 * MIB), self.entry(40, self.FREE, 0x1000), self.entry(50, self.FREE, 0x2000)])
        self.assertEqual((replays["frees"], replays["left_out"]["unmatched"]), (2, 1))
        replay, = replays["replays"]
        self.assertEqual([live // MIB for _, live, _ in replay["over_time"]], [2, 6, 4, 0])

    def test_one_device_of_several(self):
        entries = [self.entry(10, self.MALLOC, 0x1000, 2 * MIB, device=1), self.entry(20, self.MALLOC, 0x2000, 4 * MIB),
                   self.entry(30, self.FREE, 0x2000), self.entry(40, self.MALLOC, 0x3000, 6 * MIB)]
        for options, elsewhere, live in (([], 2, 2), (["--device", "1"], 2, 2), (["--device", "0"], 1, 6)):
            replays = self.replayed(entries, *options)
            self.assertEqual(replays["left_out"]["elsewhere"], elsewhere)
            self.assertEqual(replays["replays"][0]["live_peak_bytes"], live * MIB)


class Work(Case):
    def held_after_a_free_behind_a_kernel(self, malloc_us, between=""):
        return self.one_pass(f"A,1000,{2 * MIB},10,0,a\n"
                             "K,10,10,1000\n"
                             "F,1000,,10,20,a\n" + between +
                             f"A,2000,{2 * MIB},20,{malloc_us},a\n")["held_peak_bytes"]

    def test_memory_is_in_use_until_the_kernel_ends(self):
        self.assertEqual(self.held_after_a_free_behind_a_kernel(1000), 4 * MIB)
        self.assertEqual(self.held_after_a_free_behind_a_kernel(1020), 2 * MIB)

    def test_kernels_of_a_stream_run_one_after_the_other(self):
        behind = "K,10,15,500\nE,a,10,16\nW,a,30,17\nK,30,18,100\n"
        trace = f"A,1000,{2 * MIB},30,0,a\nK,10,10,1000\n{behind}F,1000,,30,20,a\nA,2000,{2 * MIB},20,"
        self.assertEqual(self.one_pass(trace + "1605,a\n")["held_peak_bytes"], 4 * MIB)
        self.assertEqual(self.one_pass(trace + "1615,a\n")["held_peak_bytes"], 2 * MIB)

    def test_kernels_that_never_end_do_not_end(self):
        years = "K,10,0,1152921504606846\n" * 20
        trace = f"A,1000,{2 * MIB},10,0,a\n{years}F,1000,,10,20,a\nA,2000,{2 * MIB},20,1000000,a\n"
        self.assertEqual(self.one_pass(trace)["held_peak_bytes"], 4 * MIB)

    def test_a_lag_is_work_before_each_free(self):
        trace = f"A,1000,{2 * MIB},10,0,a\nF,1000,,10,20,a\nA,2000,{2 * MIB},20,100,a\n"
        self.assertEqual(self.one_pass(trace, "--lag-us", "81")["held_peak_bytes"], 4 * MIB)
        self.assertEqual(self.one_pass(trace, "--lag-us", "80")["held_peak_bytes"], 2 * MIB)
        self.assertEqual(self.one_pass(trace)["held_peak_bytes"], 2 * MIB)

    def test_waits_of_the_host_take_the_time_of_the_trace(self):
        trace = (f"A,1000,{8 * MIB},0,0,s\nK,10,10,1000\nF,1000,,0,100,s\nA,2000,{8 * MIB},0,110,s\n"
                 f"F,2000,,0,120,s\nA,3000,{8 * MIB},0,130,s\n")
        figures = self.one_pass(trace, "--slack", "0%")
        self.assertEqual((figures["waited_ns"], figures["host_waits"], figures["held_peak_bytes"]),
                         (900000, 1, 8 * MIB))


class NoRoom(Case):
    def test_a_request_without_memory_is_refused_alone(self):
        figures = self.one_pass(TOO_LARGE, "--memory", "16M", status=1)
        self.assertEqual((figures["refused"], figures["calls"], figures["live_peak_bytes"]), (1, 3, 8 * MIB))

    def test_is_said(self):
        for options, said in ((["--memory", "16M"], "10 MiB .* 16 MiB, the device"),
                              (["--memory", "8M"], "10 MiB .* 8 MiB, the device"),
                              (["--limit", "10M"], "10 MiB .* 10 MiB, the limit"),
                              (["--memory", "20M", "--limit", "50%"], "10 MiB .* 8 MiB, the limit")):
            with self.subTest(options):
                result = vpmm(*options, "-", trace=TOO_LARGE)
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.stderr, rf"\Avpmm replay: through pool, 1 request of {said}\n\Z")
                self.assertRegex(result.stdout, r"(?m)^refused mallocs +1 +1$")

    def test_there_is_no_smallest_limit(self):
        self.refuse(1, "does not complete on a device of 16 MiB", "--find-limit", "--memory", "16M", "-",
                    trace=TOO_LARGE)


class Refusals(Case):
    def test_without_a_gpu(self):
        self.refuse(1, "no GPU", "--on", "gpu", "-")
        self.refuse(1, "no GPU", "--through", "cudaMalloc", "-")

    def test_bad_arguments(self):
        for words, said in ((["--passes", "x"], "--passes 'x' .* 1 to 1000"), (["--passes", "0"], "--passes '0'"),
                            (["--lag-us", "-1"], "--lag-us"), (["--nothing"], "no option --nothing"),
                            (["one", "two"], "one FILE"), ([], "no FILE"), (["--memory", "1" * 25], "--memory"),
                            (["--through", "malloc"], "pool, cudaMalloc or cudaMallocAsync"),
                            (["--on", "tpu"], "auto, gpu, gpu:N or sim"), (["--on", "gpu:x"], "gpu:N"),
                            (["--page-size", "2q"], "a number of bytes above 0"), (["--extent", "0"], "a number of pages"),
                            (["--slack", ""], "--slack"), (["--spare", "101%"], "0% to 100%"), (["--limit"], "needs a value"),
                            (["--limit", "x" * 500], "--limit"), (["--min-size", "0"], "--min-size"),
                            (["--compare", "--through", "pool", "-"], "--compare"),
                            (["--on", "gpu", "--memory", "5G", "-"], "--memory is of the simulated device"),
                            (["--on", "gpu", "--lag-us", "5", "-"], "--lag-us is of the simulated device"),
                            (["--through", "cudaMalloc", "--limit", "5G", "-"], "--limit is of the pool"),
                            (["--compare=1", "-"], "--compare takes no value"),
                            (["--on", "sim", "--through", "cudaMalloc", "-"], "--on gpu")):
            with self.subTest(words):
                self.assertEqual(len(self.refuse(2, said, *words)), 2)

    def test_nothing_of_what_is_asked_for(self):
        for words in (["--device", "5"], ["--min-size", "1T"]):
            self.refuse(1, "nothing of what is asked for is in it", "--on", "sim", *words, "-", trace=SMALL)

    def test_a_limit_without_a_page(self):
        for words, said in ((["--limit", "1M"], "a limit of 1 MiB is less than a page, which has 2 MiB"),
                            (["--limit", "3M", "--page-size", "4M"], "a limit of 3 MiB is less than a page, which has 4 MiB"),
                            (["--memory", "100M", "--limit", "1%"], "a limit of 1 MiB is less than a page")):
            with self.subTest(words):
                self.refuse(1, said, "--on", "sim", *words, "-", trace=SMALL)

    def test_a_trace_of_many_streams_and_impossible_sizes(self):
        lines = [f"A,{i + 1:x}000,{2 * MIB},{i + 100:x},{i},a" for i in range(3000)]
        lines += ["A,1,1152921504606846975,0,4000,s", "K,64,4000,1000000000000", "F,1,,0,4000,s"]
        lines += [f"F,{i + 1:x}000,,{i + 100:x},{i + 5000},a" for i in range(3000)]
        result = vpmm("--passes", "1", "--json", "-", trace="\n".join(lines) + "\n")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Avpmm replay: through pool, 1 request of .* found no room")
        figures = json.loads(result.stdout)["replays"][0]["passes"][0]
        self.assertEqual((figures["calls"], figures["refused"]), (6001, 1))

    def test_bad_files(self):
        good = f"A,1000,{2 * MIB},10,0,a\n"
        for trace in ("B,1000,1,10,0,a\n", good + good, good + "F,1001,,10,0,a\n", good + "A,2000\n", "\0\1\2", "VPMMTRC\n"):
            with self.subTest(trace):
                self.assertEqual(len(self.refuse(2, ".", "-", trace=trace)), 1)
        self.assertEqual(len(self.refuse(2, "/nowhere/at/all", "/nowhere/at/all")), 1)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(self.refuse(2, folder, folder)), 1)


if __name__ == "__main__":
    run(__doc__)
