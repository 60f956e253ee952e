# SPDX-License-Identifier: MIT
"""The example of docs/examples/weights.c: weights larger than their budget, bare and preloaded, on the simulated
device."""
import json
import os
import random
import re
import struct
import unittest

import rig

MIB = 1 << 20
FIGURES = re.compile(r"passes (\d+) held at most (\d+) of (\d+), resident (\d+), copied (\d+), staged (\d+)")


def program():
    return rig.compile("weights", "-I", os.path.join(rig.options.root, "include"), "-isystem", rig.options.cuda_headers,
                       rig.options.api, os.path.join(rig.options.sim, "libcuda.so.1"), "-ldl", "-lpthread",
                       source=os.path.join(rig.options.root, "docs", "examples", "weights.c"))


def model(name, sizes):
    """A safetensors file of tensors of random bytes."""
    path = os.path.join(rig.work, name)
    at, header, data = 0, {"__metadata__": {"format": "pt"}}, []
    for i, size in enumerate(sizes):
        header[f"layers.{i}.weight"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        data.append(random.Random(i).randbytes(size))
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    return path


class Weights(unittest.TestCase):
    def play(self, path, budget, passes=5, is_preloaded=True, **more):
        preload = {"LD_PRELOAD": rig.options.shared_library} if is_preloaded else {}
        return rig.call(program(), path, budget, passes, **preload, **more)

    def figures(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [int(word) for word in FIGURES.search(done.stdout).groups()]

    def small(self):
        return model("small", [3 * MIB + 7, MIB, 5 * MIB, 2 * MIB, 4 * MIB, 1, 6 * MIB, 2 * MIB - 1])

    def test_budgets(self):
        for budget in (8, 12, 16, 22):
            passes, peak, shown, resident, copied, staged = self.figures(self.play(self.small(), budget * MIB))
            self.assertEqual((passes, shown, staged), (5, budget * MIB, 0))
            self.assertLessEqual(peak, budget * MIB)
            self.assertLess(resident, budget * MIB)
            self.assertGreater(copied, 24 * MIB)

    def test_all_of_it(self):
        _, peak, _, resident, copied, _ = self.figures(self.play(self.small(), 64 * MIB))
        self.assertEqual(peak, resident)
        self.assertLess(copied, 24 * MIB)

    def test_too_small(self):
        done = self.play(self.small(), 5 * MIB)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"floor {6 * MIB}", done.stdout)
        self.assertIn("the budget is too small: the budget of 5242880 bytes is too small: at least 6291456 bytes are "
                      "needed", done.stderr)

    def test_limit(self):
        done = self.play(self.small(), 16 * MIB, VPMM_LIMIT="12M")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of device memory: device memory: VPMM_LIMIT leaves too little of it", done.stderr)
        _, peak, *_ = self.figures(self.play(self.small(), 12 * MIB, VPMM_LIMIT="12M"))
        self.assertLessEqual(peak, 12 * MIB)

    def test_staged(self):
        *_, copied, staged = self.figures(
            self.play(self.small(), 12 * MIB, VPMM_SIM_FAULT="cuMemHostRegister:1:801"))
        self.assertEqual(copied, staged)

    def test_bad_files(self):
        path = model("bad", [100])
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 1)
        done = self.play(path, 12 * MIB)
        self.assertEqual(done.returncode, 1)
        self.assertIn('bad: tensor "layers.0.weight": its data_offsets reach past the end of the file', done.stderr)
        done = self.play(rig.options.shared_library, 12 * MIB)
        self.assertIn("it is no safetensors file", done.stderr)

    def test_statistics(self):
        path = os.path.join(rig.work, "statistics.json")
        self.figures(self.play(self.small(), 12 * MIB, VPMM_STATS=path))
        with open(path, encoding="utf-8") as file:
            found, = json.load(file)["weights"]
        self.assertEqual((found["device"], found["passes"], found["hits"] + found["misses"]), (0, 5, 40))
        self.assertEqual((found["budget_bytes"], found["held_bytes"], found["host_bytes"]), (12 * MIB, 0, 0))
        done = self.play(self.small(), 12 * MIB, VPMM_STATS="1")
        self.assertIn("\nweights of device 0\n", done.stderr)

    def test_trace(self):
        """It has every load and pass; one of a program without weights is of the version before."""
        path = os.path.join(rig.work, "weights.vpmm")
        *_, copied, _ = self.figures(self.play(self.small(), 12 * MIB, VPMM_TRACE=path))
        self.assertEqual(self.version(path), 3)
        found = json.loads(rig.vpmm("trace", "summary", "--json", path).stdout)["weights"]
        self.assertEqual(found["pass"]["times"], 5)
        self.assertTrue(0 <= copied - found["load"]["bytes"] < 6 * MIB, found)  # one may be copied in part
        self.assertGreater(found["evict"]["times"], 0)
        self.assertIn("passes, copied in them", rig.vpmm("trace", "summary", path).stdout)
        other = os.path.join(rig.work, "copy.vpmm")
        self.assertEqual(rig.vpmm("trace", "convert", path, "-o", other, "--to", "vpmm").returncode, 0)
        self.assertEqual(json.loads(rig.vpmm("trace", "summary", "--json", other).stdout)["weights"], found)
        chrome = os.path.join(rig.work, "weights.json")
        self.assertEqual(rig.vpmm("trace", "convert", path, "-o", chrome, "--to", "chrome").returncode, 0)
        with open(chrome, encoding="utf-8") as file:
            names = [event["name"] for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(names.count("end of a pass"), 5)
        self.play(self.small(), 5 * MIB, VPMM_TRACE=path)
        self.assertEqual(self.version(path), 2)

    @staticmethod
    def version(path):
        with open(path, "rb") as file:
            return struct.unpack_from("<I", file.read(12), 8)[0]

    def test_without_the_library(self):
        done = self.play(self.small(), 12 * MIB, is_preloaded=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("libvpmm.so is not preloaded", done.stderr)
        done = self.play(self.small(), 12 * MIB, VPMM_DISABLE=1)
        self.assertIn("libvpmm.so leaves this process to CUDA", done.stderr)


if __name__ == "__main__":
    rig.main()
