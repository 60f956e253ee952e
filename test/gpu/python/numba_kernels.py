# SPDX-License-Identifier: MIT
"""Numba's own kernels on arrays of changing size, on several streams. Prints a digest of every result."""
import hashlib

import numpy

# Releases of Numba's CUDA target older than NumPy 2.5 still name this function, which is gone.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

from numba import cuda


@cuda.jit
def scale_kernel(given, result):
    i = cuda.grid(1)
    if i < given.size:
        result[i] = given[i] * 3 + i


def main() -> None:
    random = numpy.random.default_rng(9)
    streams = [cuda.stream() for _ in range(3)]
    for turn, size in enumerate([1 << 20, 3_000_001, 9 << 20, 5_555_555, 1 << 22, 17 << 20]):
        stream = streams[turn % len(streams)]
        given = cuda.to_device(random.integers(0, 1 << 30, size), stream=stream)
        result = cuda.device_array_like(given, stream=stream)
        scale_kernel[(size + 255) // 256, 256, stream](given, result)
        host = result.copy_to_host(stream=stream)
        stream.synchronize()
        print(size, hashlib.sha256(host.tobytes()).hexdigest()[:16])


main()
