# SPDX-License-Identifier: MIT
"""The programs that measure and compare models on a GPU, here on the CPU. Skipped where there is no PyTorch."""
import contextlib
import io
import sys
import unittest
from unittest import mock

from on_the_host import OnTheHost, torch

import llama


class OnAGpu(OnTheHost):
    """The programs for a GPU, here on the CPU: that they run to their end, and print the same both ways."""

    SMALL = llama.Shape(width=128, wide=256, layers=2, heads=4, key_heads=2, words=300)

    def printed(self, is_offloaded):
        import weights_llama
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), \
                mock.patch.multiple(weights_llama, DEVICE="cpu", SHAPE=self.SMALL, has_library=lambda: is_offloaded,
                                    graph=lambda *_: None, refusals=lambda: None), \
                mock.patch.object(torch.cuda, "is_available", lambda: True), \
                mock.patch.object(unittest.TextTestRunner, "run", lambda *_: mock.Mock(wasSuccessful=lambda: True)):
            self.assertEqual(weights_llama.main(), 0)
        return [line for line in out.getvalue().splitlines() if not line.startswith("#")]

    def test_the_program_of_the_gpu_check(self):
        bare = self.printed(False)
        self.assertGreater(len(bare), 7)
        self.assertEqual(self.printed(True), bare)

    def figures(self, way):
        import weights as bench
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "stdin", io.StringIO("\n")):
            self.assertEqual(bench.main([way, "0.04", self.folder, "--small", "--decodes", "1"]), 0)
        return dict(line.split(",")[:2] for line in out.getvalue().splitlines() if "," in line)

    def test_every_way_of_the_benchmark_computes_the_same(self):
        wanted = self.figures("resident")["check"]
        for way in ("ring", "vpmm"):
            found = self.figures(way)
            self.assertEqual(found["check"], wanted, way)
            self.assertIn("decode_50", found)
        self.assertLessEqual({"decode_75", "decode_25", "decode_floor", "decode_all", "prefill_50", "bound_50",
                              "attainable_50", "carry", "first"}, set(found))

    def test_its_refusals(self):
        import weights_llama
        with contextlib.chdir(self.folder), \
                mock.patch.multiple(weights_llama, DEVICE="cpu", SHAPE=self.SMALL):
            llama.save(llama.empty(weights_llama.SHAPE), weights_llama.FILE)
            weights_llama.refusals()


if __name__ == "__main__":
    unittest.main()
