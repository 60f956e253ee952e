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
                   "free:3", "malloc:22", "malloc:24", VPMM_LIMIT="24M", VPMM_MIN_SIZE="page")
        self.assertEqual(done.output.splitlines(), ["init 0", "malloc 0", "async 0", "malloc 2", "async 2", "malloc 0",
                                                    "free 0", "malloc 0", "free 0", "free 0", "malloc 0", "malloc 2"])
        told = done.statistics[0]
        self.assertEqual((told["requests"]["cudaMalloc"]["limited"], told["requests"]["cudaMallocAsync"]["limited"]), (2, 1))
        device = told["devices"][0]
        self.assertEqual((device["limit_bytes"], device["held_peak_bytes"], device["audit"]), (24 << 20, 24 << 20, 0))
        told = [line for line in done.errors.splitlines() if "VPMM_LIMIT allows 24 MiB" in line]
        self.assertEqual(len(told), 3, done.errors)

    def test_blocks_that_share_pages_count_with_the_rest_of_these(self):
        done = run("init", "malloc:10", "malloc:1", "malloc:1", VPMM_LIMIT="14M")
        self.assertEqual(done.output.splitlines(), ["init 0", "malloc 0", "malloc 0", "malloc 2"])
        device = done.statistics[0]["devices"][0]
        self.assertEqual((device["held_peak_bytes"], device["small_live_bytes"]), (14 << 20, (1 << 20) + 13))

    def test_blocks_share_last_pages_once_these_waste_much(self):
        n, block = 50, (2 << 20) + 13
        done = run("init", *["malloc:2"] * n, VPMM_SLACK=0)
        self.assertEqual(done.output.splitlines(), ["init 0"] + ["malloc 0"] * n)
        device = done.statistics[0]["devices"][0]
        self.assertEqual(device["small_live_bytes"], (n - 1) * block)
        self.assertLess(device["held_peak_bytes"], n * block * 3 // 2)

    def test_share_of_the_device(self):
        self.assertEqual(lines("init", "malloc:120", "malloc:100", VPMM_LIMIT="50%")[1:], ["malloc 0", "malloc 2"])

    def test_without_one_the_device_is_the_limit(self):
        done = run("init", "malloc:120", "malloc:100", VPMM_LIMIT="none")
        self.assertEqual(done.output.splitlines()[1:], ["malloc 0", "malloc 0"])
        self.assertEqual(done.statistics[0]["devices"][0]["limit_bytes"], 0)

    def test_information_is_within_it(self):
        told = lines("init", "info", "malloc:10", "info", "free:0", "info", "malloc:1", "info", VPMM_LIMIT="24M")
        self.assertEqual([line for line in told if line.startswith("info")],
                         ["info 0 24 24", "info 0 12 24", "info 0 24 24", "info 0 16 24"])

    def test_information_of_the_total_alone(self):
        self.assertEqual(lines("init", "malloc:1", "total", VPMM_LIMIT="24M")[-1], "total 0 24")

    def test_information_is_the_devices_where_that_has_less(self):
        bare = lines("init", "malloc:1", "info", VPMM_DISABLE=1)
        self.assertEqual(lines("init", "malloc:1", "info", VPMM_LIMIT="100G"), bare)

    def test_information_is_the_devices_where_there_is_no_pool(self):
        for more in {"VPMM_SIM_VMM": 0}, {"VPMM_PAGE_SIZE": "1T"}:
            bare = lines("init", "malloc:10", "info", VPMM_DISABLE=1)
            self.assertEqual(lines("init", "malloc:10", "info", VPMM_LIMIT="24M", **more), bare)

    def test_it_is_dumped(self):
        done = run("init", "malloc:10", "raise", VPMM_LIMIT="24M", VPMM_DUMP_FORMAT="json")
        self.assertIn(f'"limit_bytes": {24 << 20}, ', done.errors)


class Pitch(unittest.TestCase):
    KNOWN = tuple(f"rows:{width}:1:{element}" for width in (100, 512) for element in (4, 8, 16))

    def as_bare(self, *shapes, mallocs, before=KNOWN, **environment):
        asked = ["init", *before, *(f"rows:{shape}" for shape in shapes)]
        done = run(*asked, **environment)
        bare = run(*asked, VPMM_DISABLE=1)
        self.assertEqual(done.output, bare.output)
        self.assertEqual([told["devices"][0]["mallocs"] for told in done.statistics], [mallocs] * (mallocs > 0), done.output)

    def test_large_ones_are_served_with_the_pitch_of_bare_cuda(self):
        self.as_bare("1000:3000:4", "1:10000:8", f"{2 << 20}:4:16", "65537:100:4", "1024:4096:16", f"{5 << 20}:2:8",
                     mallocs=6)

    def test_small_ones_share_pages_or_pass_through(self):
        for least, mallocs in ("1", 1), ("page", 0):
            self.as_bare("1000:300:4", "1:100:8", "4096:2:16", "1:1000:4", mallocs=mallocs, VPMM_MIN_SIZE=least)

    def test_the_first_of_a_kind_passes_through(self):
        self.as_bare("1000:3000:4", "1024:3000:4", "1000:3000:8", mallocs=0, before=())
        self.as_bare("1000:3000:4", "2000:3000:4", "1024:3000:4", "2048:3000:4", "1000:3000:8", mallocs=2, before=())

    def test_bad_ones_are_refused_as_bare(self):
        self.as_bare("0:4000000:4", "4000000:0:4", "4000000:4:3", "4000000:4:0", "4000000:4:32", f"{2**64 - 1}:4:4",
                     f"{2**64 - 4096}:4:4", f"{2**63}:4:4", f"{2**40}:{2**40}:4", mallocs=0)

    def test_larger_than_the_device_is_refused_as_bare(self):
        self.as_bare(f"{1 << 20}:1000:4", "1000:3000:4", mallocs=1)

    def test_without_a_context_as_bare(self):
        asked = ["rows:1000:3000:4"] * 2
        self.assertEqual(lines(*asked), lines(*asked, VPMM_DISABLE=1))

    def test_they_are_blocks_of_cudamalloc(self):
        ours, bare = (lines("init", "rows:1000:3:4", "rows:1000:3000:4", "attributes:1", "free:1", "free:1",
                            "rows:1000:3000:4", "freeasync:2", VPMM_DISABLE=off) for off in (0, 1))
        self.assertEqual([line.rsplit(" id=", 1)[0].replace("ipc=0", "ipc=1") for line in ours],
                         [line.rsplit(" id=", 1)[0] for line in bare])

    def test_the_limit_counts_them(self):
        self.assertEqual(lines("init", "rows:1024:2:4", "rows:1024:8192:4", "rows:1024:8192:4", VPMM_LIMIT="10M")[2:],
                         [f"rows 0 pitch 1024 range {8 << 20} 1", "rows 2 pitch 1 range 0 1"])


class Relief(unittest.TestCase):
    def test_others_get_what_the_pool_does_not_use(self):
        for name in "cuStreamCreate", "cuGraphInstantiate", "cuGraphLaunch", "cuCtxCreate":
            with self.subTest(name=name):
                asked = ["init", "malloc:64", "free:0", f"fault:{name}:1:2", "others", f"struck:{name}"]
                done = run(*asked)
                self.assertIn("struck 1", done.errors)
                self.assertEqual([line.split()[-1] for line in done.output.splitlines()], ["0"] * 9, done.output)
                self.assertGreater(done.statistics[0]["devices"][0]["trimmed_bytes"], 64 << 20)
                self.assertIn(" 2\n", run(*asked, VPMM_DISABLE=1).output)

    def test_what_cannot_be_helped_is_refused_as_bare(self):
        asked = ["init", "malloc:64", "fault:cuStreamCreate:1:2:forever", "others"]
        self.assertEqual(lines(*asked), lines(*asked, VPMM_DISABLE=1))


if __name__ == "__main__":
    harness.main()
