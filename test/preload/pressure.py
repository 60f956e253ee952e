# SPDX-License-Identifier: MIT
"""Memory that is short: a limit on what the pool holds, and what it gives back."""
import os
import unittest

import harness

OUT_OF_MEMORY = "2"


def driver():
    return harness.program("driver-pressure", "-isystem", harness.options.cuda_headers,
                           os.path.join(harness.options.sim, "libcuda.so.1"), source="driver.c")


def run(*arguments, **environment):
    """The program's run on a device of 256 MiB; every block of N MiB has 13 bytes more and so takes a page more."""
    done = harness.Run([driver(), *arguments], library_path=[harness.options.sim],
                       **{"VPMM_SIM_BYTES": "256M", **environment})
    if done.status != 0:
        raise AssertionError(f"ended with {done.status}: {done.output}{done.errors}")
    return done


def lines(*arguments, **environment):
    return run(*arguments, **environment).output.splitlines()


class Limit(unittest.TestCase):
    def test_what_exceeds_it_is_refused_and_not_passed_on(self):
        done = run("init", "malloc:10", "async:10", "malloc:10", "async:10", "malloc:1", "free:0", "malloc:10", "free:1",
                   "free:3", "malloc:22", "malloc:24", VPMM_LIMIT="24M")
        self.assertEqual(done.output.splitlines(), ["init 0", "malloc 0", "async 0", "malloc 2", "async 2", "malloc 0",
                                                    "free 0", "malloc 0", "free 0", "free 0", "malloc 0", "malloc 2"])
        told = done.statistics[0]
        self.assertEqual((told["requests"]["cudaMalloc"]["limited"], told["requests"]["cudaMallocAsync"]["limited"]), (2, 1))
        device = told["devices"][0]
        self.assertEqual((device["limit_bytes"], device["held_peak_bytes"], device["audit"]), (24 << 20, 24 << 20, 0))
        told = [line for line in done.errors.splitlines() if "VPMM_LIMIT allows 24 MiB" in line]
        self.assertEqual(len(told), 3, done.errors)

    def test_share_of_the_device(self):
        self.assertEqual(lines("init", "malloc:120", "malloc:100", VPMM_LIMIT="50%")[1:], ["malloc 0", "malloc 2"])

    def test_without_one_the_device_is_the_limit(self):
        done = run("init", "malloc:120", "malloc:100", VPMM_LIMIT="none")
        self.assertEqual(done.output.splitlines()[1:], ["malloc 0", "malloc 0"])
        self.assertEqual(done.statistics[0]["devices"][0]["limit_bytes"], 0)

    def test_information_is_within_it(self):
        told = lines("init", "info", "malloc:10", "info", "free:0", "info", "malloc:1", "info", VPMM_LIMIT="24M")
        self.assertEqual([line for line in told if line.startswith("info")],
                         ["info 0 24 24", "info 0 12 24", "info 0 24 24", "info 0 24 24"])

    def test_information_is_the_devices_where_that_has_less(self):
        bare = lines("init", "malloc:1", "info", VPMM_DISABLE=1)
        self.assertEqual(lines("init", "malloc:1", "info", VPMM_LIMIT="100G"), bare)

    def test_it_is_dumped(self):
        done = run("init", "malloc:10", "raise", VPMM_LIMIT="24M", VPMM_DUMP_FORMAT="json")
        self.assertIn(f'"limit": {24 << 20}, ', done.errors)


if __name__ == "__main__":
    harness.main()
