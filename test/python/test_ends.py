# SPDX-License-Identifier: MIT
"""Programs that end with tensors over windows, which go in whatever order the interpreter ends things. Skipped where there
is no PyTorch."""
import os
import subprocess
import sys
import unittest

from on_the_host import HERE

PROGRAM = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import torch
from vpmm import dlpack
dlpack.CUDA = 1
memory = ctypes.create_string_buffer(1 << 16)
tensors = [dlpack.tensor_at(torch, (ctypes.addressof(memory) + 63) & ~63, 1 << 12, 0) for _ in range(1000)]
assert all(tensor.shape == (1 << 12,) for tensor in tensors)
where = sys.argv[2]
if where == "sys":
    sys.kept = tensors
elif where == "torch":
    torch.kept = tensors
elif where == "model":
    model = torch.nn.Module()
    model.kept, model.itself = tensors, [model]
print("end")
"""


class Ends(unittest.TestCase):
    def test_tensors_that_outlive_the_package(self):
        for where in "main", "sys", "torch", "model":
            done = subprocess.run([sys.executable, "-c", PROGRAM, os.path.join(HERE, "..", "..", "python"), where],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""), where)


if __name__ == "__main__":
    unittest.main()
