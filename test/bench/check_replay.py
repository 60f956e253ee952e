#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The replayer: the same trace twice gives the same modelled figures, nothing is left held, the modelled time is the
sum of calls times prices, queued work and waits are followed, and a malformed trace is refused."""
import argparse
import csv
import gzip
import pathlib
import subprocess
import unittest

MIB = 1 << 20
REAL_TIME = {"own_ns", "last_malloc_ns", "p50_ns", "p99_ns", "max_ns"}
# Nanoseconds a handle of 2 MiB, and a call, on an NVIDIA H200 with driver 580.
HANDLE_PRICES = {"create": 7000, "map": 500, "access": 20000, "unmap": 14000, "release": 9000}
CALL_PRICES = {"reserve": 4000, "record": 140, "record_context": 180, "query": 160, "stream_wait": 120,
               "host_wait": 160, "stream_facts": 33, "context": 8}


def replay(trace, *options):
    command = [arguments.program, "--csv", "--name", "trace", *options, "-"]
    return subprocess.run(command, input=trace, capture_output=True, text=True, check=False, timeout=60)


class Replayer(unittest.TestCase):
    def rows(self, trace, *options):
        result = replay(trace, *options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return list(csv.DictReader(result.stdout.splitlines()))

    def row(self, trace, *options):
        rows = self.rows(trace, "--passes", "1", *options)
        self.assertEqual(len(rows), 1)
        return {name: int(value) for name, value in rows[0].items() if value.isdigit()}

    def test_a_recorded_trace(self):
        trace = gzip.decompress(arguments.trace.read_bytes()).decode()
        first, second = self.rows(trace), self.rows(trace)
        self.assertEqual(len(first), 3)
        for one, other in zip(first, second):
            self.assertEqual({name: one[name] for name in one if name not in REAL_TIME},
                             {name: other[name] for name in other if name not in REAL_TIME})
            self.assertGreaterEqual(int(one["held_peak_bytes"]), int(one["live_peak_bytes"]))
            self.assertEqual((one["calls"], one["live_peak_bytes"], one["refused"]), ("4227", "1222639872", "0"))
            ways = ("cache_hits", "habit_hits", "fits", "revives", "stitches", "grows")
            served = sum(int(one[way]) for way in ways)
            self.assertEqual(served, 2114)

    def test_modelled_time_is_calls_times_prices(self):
        row = self.row(f"A,1000,{2 * MIB},10,0,a\n"
                       f"A,2000,{6 * MIB},20,10,s\n"
                       "F,1000,,10,20,a\n"
                       "F,2000,,20,30,s\n"
                       f"A,3000,{10 * MIB},20,40,a\n", "--extent", "1")
        expected = sum(ns * row[f"{name}_handles"] for name, ns in HANDLE_PRICES.items())
        expected += sum(ns * row[f"{name}_calls"] for name, ns in CALL_PRICES.items())
        self.assertEqual(row["driver_ns"], expected)
        self.assertGreaterEqual(row["access_handles"], 5)
        self.assertEqual(row["record_context_calls"], 1)
        self.assertEqual((row["calls"], row["live_peak_bytes"], row["held_peak_bytes"]), (5, 10 * MIB, 10 * MIB))

    def test_small_requests_are_left_out(self):
        trace = f"A,1000,{2 * MIB},10,0,a\nA,2000,4096,10,1,a\nF,2000,,10,2,a\n"
        self.assertEqual(self.row(trace)["calls"], 1)
        self.assertEqual(self.row(trace, "--least", "4096")["calls"], 3)

    def test_a_request_larger_than_the_device_is_refused_alone(self):
        trace = f"A,1000,{8 * MIB},10,0,a\nA,2000,{10 * MIB},10,1,a\nF,1000,,10,2,a\nF,2000,,10,3,a\n"
        row = self.row(trace, "--device", "16")
        self.assertEqual((row["refused"], row["calls"], row["live_peak_bytes"]), (1, 3, 8 * MIB))

    def held_after_a_free_behind_a_kernel(self, malloc_us, between=""):
        return self.row(f"A,1000,{2 * MIB},10,0,a\n"
                        "K,10,10,1000\n"
                        "F,1000,,10,20,a\n" + between +
                        f"A,2000,{2 * MIB},20,{malloc_us},a\n")["held_peak_bytes"]

    def test_memory_is_in_use_until_the_kernel_ends(self):
        self.assertEqual(self.held_after_a_free_behind_a_kernel(1000), 4 * MIB)
        self.assertEqual(self.held_after_a_free_behind_a_kernel(1020), 2 * MIB)

    def test_kernels_of_a_stream_run_one_after_the_other(self):
        behind = "K,10,15,500\nE,a,10,16\nW,a,30,17\nK,30,18,100\n"
        trace = f"A,1000,{2 * MIB},30,0,a\nK,10,10,1000\n{behind}F,1000,,30,20,a\nA,2000,{2 * MIB},20,"
        self.assertEqual(self.row(trace + "1605,a\n")["held_peak_bytes"], 4 * MIB)
        self.assertEqual(self.row(trace + "1615,a\n")["held_peak_bytes"], 2 * MIB)

    def test_a_lag_is_work_before_each_free(self):
        trace = f"A,1000,{2 * MIB},10,0,a\nF,1000,,10,20,a\nA,2000,{2 * MIB},20,100,a\n"
        self.assertEqual(self.row(trace, "--lag-us", "81")["held_peak_bytes"], 4 * MIB)
        self.assertEqual(self.row(trace, "--lag-us", "80")["held_peak_bytes"], 2 * MIB)
        self.assertEqual(self.row(trace)["held_peak_bytes"], 2 * MIB)

    def test_waits_of_the_host_take_the_time_of_the_trace(self):
        trace = (f"A,1000,{8 * MIB},0,0,s\nK,10,10,1000\nF,1000,,0,100,s\nA,2000,{8 * MIB},0,110,s\n"
                 f"F,2000,,0,120,s\nA,3000,{8 * MIB},0,130,s\n")
        row = self.row(trace, "--slack", "0", "--slack-percent", "0")
        self.assertEqual((row["waited_us"], row["host_waits"], row["held_peak_bytes"]), (900, 1, 8 * MIB))

    def test_malformed_traces_are_refused(self):
        good = f"A,1000,{2 * MIB},10,0,a\n"
        for bad in ("B,1000,1,10,0,a", "AA,1000,1,10,0,a", "A,1000", f"A,xyz,{MIB},10,0,a", "A,1000,,10,0,a",
                    "A,1000,0,10,0,a", "A,1000,-5,10,0,a", "A,1000,5x,10,0,a", "A,1000,5,10,0,q", "A,1000,5,10,0,",
                    "A,1000,99999999999999999999,10,0,a", "A,1000,5,10,0,a,more", good + good, "F,1000,,10,0,a",
                    good + "F,1000,5,10,0,a", good + "F,1001,,10,0,a", "K,10,0", "K,10,0,x", "E,,10,0", "W,1,10",
                    "W,1,10,0,0", "A", ","):
            with self.subTest(bad):
                result = replay(bad)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                line = bad.rstrip("\n").count("\n") + 1
                self.assertRegex(result.stderr, rf"\Atrace:{line}: [^\n]+\n\Z")

    def test_bad_options_are_refused(self):
        for bad in (["--passes", "x"], ["--lag-us", "-1"], ["--nothing"], ["one", "two"], ["--device", "1" * 20]):
            with self.subTest(bad):
                self.assertEqual(replay("", *bad).returncode, 2)
        self.assertEqual(subprocess.run([arguments.program, "/nowhere/at/all"], capture_output=True,
                                        check=False).returncode, 2)

    def test_an_empty_trace(self):
        self.assertEqual(self.row("# nothing\n\n")["calls"], 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--trace", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    unittest.main(argv=["check_replay.py"])
