#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vpmm replay on a GPU, which is the simulated driver: all three ways serve, one is taken where there is one, and what a
driver refuses is told in a line."""
import json

import replaying
from replaying import MIB, SMALL, TOO_LARGE, Case, run, vpmm

GPU = {"VPMM_SIM_DATA": "0", "VPMM_SIM_STRICT": "2"}
THROUGHS = ("pool", "cudaMalloc", "cudaMallocAsync")


class Gpu(Case):
    def test_all_three_ways(self):
        replays = self.replays(SMALL, "--compare", "--find-limit", gpu=GPU)
        self.assertEqual((replays["on"], replays["smallest_limit_bytes"]), ("gpu", 6 * MIB))
        self.assertEqual([replay["through"] for replay in replays["replays"]], list(THROUGHS))
        for replay in replays["replays"]:
            self.assertEqual(replay["device"], "GPU 0, Simulated device")
            self.assertEqual([figures["calls"] for figures in replay["passes"]], [4, 4])
            # CUDA holds what is live: 3 + 2 MiB, then 2 + 4.
            self.assertEqual((replay["live_peak_bytes"], replay["held_peak_bytes"]), (6 * MIB, 6 * MIB), replay)
        pool, *bare = replays["replays"]
        self.assertEqual(pool["passes"][0]["by_kind"]["allocate"]["calls"], 0)
        self.assertGreater(pool["passes"][0]["by_kind"]["create"]["calls"], 0)
        for replay in bare:
            for figures in replay["passes"]:
                kinds = {kind: of["calls"] for kind, of in figures["by_kind"].items() if of["calls"]}
                self.assertEqual(kinds, {"allocate": 3, "free": 1})
                self.assertLessEqual(figures["p50_ns"], figures["p99_ns"])
                self.assertLessEqual(figures["p99_ns"], figures["max_ns"])
                self.assertLessEqual(figures["max_ns"], figures["driver_ns"] + figures["own_ns"])

    def test_a_recorded_trace_as_on_the_simulated_device(self):
        path = str(replaying.arguments.traces / "jax.csv.gz")
        there, here = (json.loads(vpmm("--json", path, gpu=gpu).stdout)["replays"][0]
                       for gpu in ({**GPU, "VPMM_SIM_BYTES": "143771M"}, None))
        for key in ("live_peak_bytes", "held_peak_bytes", "page_bytes"):
            self.assertEqual(there[key], here[key])
        self.assertEqual([figures["stitches"] for figures in there["passes"]],
                         [figures["stitches"] for figures in here["passes"]])

    def test_in_words(self):
        result = vpmm("--compare", "-", trace=SMALL + "K,10,5,100\n", gpu=GPU)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^ +pool +cudaMalloc +cudaMallocAsync$")
        self.assertRegex(result.stdout, r"(?m)^held peak" + r" +6 MiB" * 6 + "$")
        self.assertIn("on GPU 0, Simulated device", result.stdout)
        self.assertIn("without the 1 kernels of the trace", result.stdout)

    def test_is_taken_where_there_is_one(self):
        for options, on in ((["--on", "sim"], "sim"), (["--on", "auto"], "gpu"), (["--on", "gpu:0"], "gpu"), ([], "gpu")):
            self.assertEqual(self.replays(SMALL, *options, gpu=GPU)["on"], on)

    def test_another_one(self):
        two = {**GPU, "VPMM_SIM_DEVICES": "2"}
        for through in THROUGHS:
            replay = self.replays(SMALL, "--on", "gpu:1", "--through", through, gpu=two)["replays"][0]
            self.assertEqual((replay["device"], replay["held_peak_bytes"]), ("GPU 1, Simulated device", 6 * MIB))
        self.refuse(1, "no GPU 1", "--on", "gpu:1", "-", trace=SMALL, gpu=GPU)

    def test_under_the_preload(self):
        if not replaying.arguments.shared_library:
            self.skipTest("an instrumented library cannot be preloaded")
        preload = {"LD_PRELOAD": replaying.arguments.shared_library, "VPMM_MIN_SIZE": "page"}
        for gpu, is_preloaded in (({**GPU, **preload}, True), (GPU, False)):
            result = vpmm("--compare", "--json", "-", trace=SMALL, gpu=gpu)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for replay in json.loads(result.stdout)["replays"]:
                self.assertEqual((replay["is_preloaded"], replay["held_peak_bytes"]), (is_preloaded, 6 * MIB), replay)
            self.assertEqual("which is preloaded" in vpmm("-", trace=SMALL, gpu=gpu).stdout, is_preloaded)

    def test_what_does_not_fit(self):
        for through in THROUGHS:
            result = vpmm("--through", through, "--passes", "1", "-", trace=TOO_LARGE,
                          gpu={**GPU, "VPMM_SIM_BYTES": "16M"})
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, rf"\Avpmm replay: through {through}, 1 request of 10 MiB found no room in .*, the device\n\Z")

    def test_a_driver_that_fails(self):
        for call, through in (("cuMemAlloc", "cudaMalloc"), ("cuMemAllocAsync", "cudaMallocAsync"),
                              ("cuMemFreeAsync", "cudaMallocAsync"), ("cuStreamCreate", "pool"),
                              ("cuDevicePrimaryCtxRetain", "pool")):
            with self.subTest(call):
                fault = {**GPU, "VPMM_SIM_FAULT": f"{call}:1:719"}
                self.refuse(1, "(LAUNCH_FAILED|failed on GPU 0, Simulated device)", "--through", through, "-", trace=SMALL, gpu=fault)


if __name__ == "__main__":
    run(__doc__)
