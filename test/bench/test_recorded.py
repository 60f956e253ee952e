# SPDX-License-Identifier: MIT
"""The recorded programs in Python, tiny and without a GPU: each comes to its end, and does the same every time. PyTorch
computes on the CPU, NumPy stands in for CuPy, and Numba simulates. Skipped where none of these is installed."""
import contextlib
import importlib
import importlib.util
import io
import os
import sys
import unittest
from pathlib import Path

import recording
import split

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
PROGRAMS = Path(__file__).resolve().parent / "python"
sys.path.insert(0, str(PROGRAMS))
# What each needs; of the rest PyTorch.
NEEDS = {"fft_codes": "numpy", "query_engines": "numba"}
SOURCES = [recording.TARGETS[name].source for name in split.NAMES if recording.TARGETS[name].is_python]


def is_there(package):
    return importlib.util.find_spec(package) is not None


def printed(source):
    """What a run of the program prints; it must end well."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = importlib.import_module(source).main(["--device", "cpu", "--tiny"])
    return code, out.getvalue()


class Programs(unittest.TestCase):
    def test_each_ends_well_and_does_the_same_again(self):
        for source in SOURCES:
            package = NEEDS.get(source, "torch")
            if not is_there(package):
                continue
            with self.subTest(source):
                if package == "torch":
                    import torch
                    torch.set_num_threads(1)
                code, first = printed(source)
                self.assertEqual(code, 0)
                self.assertRegex(first, r"^steps,[1-9]\d*,steps\nresult,[-\d.e+]+,\n$")
                self.assertEqual(printed(source), (0, first))

    def test_a_result_that_is_no_number_is_a_failure(self):
        import scale
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual((scale.finish(1, 0.5), scale.finish(1, float("nan"))), (0, 1))


if __name__ == "__main__":
    if not any(map(is_there, ("torch", "numpy", "numba"))):
        print("none of PyTorch, NumPy and Numba is installed")
        sys.exit(77)
    unittest.main()
