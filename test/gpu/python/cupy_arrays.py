# SPDX-License-Identifier: MIT
"""CuPy on arrays of changing size: kernels, sorting, products and transforms. Prints a digest of every result.

Argument: the allocator: pool (CuPy's own), none (every array is a cudaMalloc) or async (cudaMallocAsync).
"""
import hashlib
import sys

import cupy

ALLOCATORS = {
    "pool": lambda: None,
    "none": lambda: cupy.cuda.set_allocator(None),
    "async": lambda: cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc),
}


def digest(array: cupy.ndarray) -> str:
    """Of the array's bytes."""
    return hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:16]


def main() -> None:
    ALLOCATORS[sys.argv[1]]()
    sizes = [1 << 20, 3_000_001, 5 << 20, 7_777_777, 1 << 22, 11 << 20]
    generator = cupy.random.Generator(cupy.random.XORWOW(seed=5))
    stream = cupy.cuda.Stream(non_blocking=True)
    kept = []
    for turn in range(3):
        for size in sizes:
            numbers = generator.random(size, dtype=cupy.float32)
            ordered = cupy.sort(numbers)
            side = int(size**0.5) // 8
            square = numbers[: side * side].reshape(side, side)
            product = square @ square.T
            spectrum = cupy.fft.rfft(numbers[: 1 << 20])
            cupy.cuda.get_current_stream().synchronize()
            with stream:
                scaled = numbers * 3 + ordered
            stream.synchronize()
            print(turn, size, digest(ordered), digest(product), digest(spectrum), digest(scaled))
            kept = [*kept[-3:], ordered]
        print(turn, [digest(array) for array in kept])
        cupy.get_default_memory_pool().free_all_blocks()


main()
