# SPDX-License-Identifier: MIT
"""The look-ups that cuBLAS and NCCL make through the runtimes inside them. Both libraries are
large: where one is missing the test counts as skipped, and `scripts/test --all` installs it."""
import os
import sys

import find_library
import harness
import look_ups

SKIP = 77


class Libraries(look_ups.LookUps):
    def check_call(self, library, function):
        path = find_library.find(library)
        command = [harness.program("embedded"), path, function]
        self.check(self.spied(command, folders=[os.path.dirname(path)]))

    def test_cublas(self):
        self.check_call("libcublas.so", "cublasCreate_v2")

    def test_nccl(self):
        self.check_call("libnccl.so", "ncclMemAlloc")


if __name__ == "__main__":
    try:
        for name in ("libcublas.so", "libnccl.so"):
            find_library.find(name)
    except find_library.Missing as missing:
        print(f"not checked: {missing}")
        sys.exit(SKIP)
    harness.main()
