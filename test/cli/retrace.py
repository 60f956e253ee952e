#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the calls of a trace of test/traces once more, so many times as fast, through whatever libcuda.so.1 the process
finds: a program that allocates as a real one did, to be recorded where there is no GPU. Kernels and events are left out."""
import argparse
import ctypes
import gzip
import pathlib
import time

US = 1e-6
CALLS = {"cuInit": [ctypes.c_uint], "cuDevicePrimaryCtxRetain": [ctypes.c_void_p, ctypes.c_int],
         "cuCtxSetCurrent": [ctypes.c_void_p], "cuStreamCreate": [ctypes.c_void_p, ctypes.c_uint],
         "cuMemAlloc_v2": [ctypes.c_void_p, ctypes.c_size_t], "cuMemFree_v2": [ctypes.c_uint64],
         "cuMemAllocAsync": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
         "cuMemFreeAsync": [ctypes.c_uint64, ctypes.c_void_p]}


class Cuda:
    """The driver; every call that fails ends the program."""

    def __init__(self):
        library = ctypes.CDLL("libcuda.so.1")
        for name, types in CALLS.items():
            function = getattr(library, name)
            function.argtypes = types
            setattr(self, name, self.checked(name, function))
        self.streams = {"0": None, "1": 1, "2": 2}

    @staticmethod
    def checked(name, function):
        def call(*words):
            status = function(*words)
            if status:
                raise SystemExit(f"{name} answered {status}")
        return call

    def begin(self):
        context = ctypes.c_void_p()
        self.cuInit(0)
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuCtxSetCurrent(context)

    def stream(self, name):
        if name not in self.streams:
            made = ctypes.c_void_p()
            self.cuStreamCreate(ctypes.byref(made), 1)
            self.streams[name] = made
        return self.streams[name]


def replay(cuda, lines, speed, least):
    blocks, begin, first = {}, time.monotonic(), None
    for line in lines:
        kind, *fields = line.strip().split(",")
        if kind not in ("A", "F"):
            continue
        address, n_bytes, stream, us, call = fields
        first = int(us) if first is None else first
        late = begin + (int(us) - first) * US / speed - time.monotonic()
        if late > 0:
            time.sleep(late)
        if kind == "F":
            block = blocks.pop(address, None)
            if block is not None:
                cuda.cuMemFree_v2(block) if call == "s" else cuda.cuMemFreeAsync(block, cuda.stream(stream))
        elif int(n_bytes) >= least:
            block = ctypes.c_uint64()
            if call == "s":
                cuda.cuMemAlloc_v2(ctypes.byref(block), int(n_bytes))
            else:
                cuda.cuMemAllocAsync(ctypes.byref(block), int(n_bytes), cuda.stream(stream))
            blocks[address] = block.value


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--speed", type=float, default=10.0)
    parser.add_argument("--least", type=int, default=1 << 20, help="bytes of the smallest request that is made")
    arguments = parser.parse_args()
    opened = gzip.open if arguments.trace.suffix == ".gz" else open
    with opened(arguments.trace, "rt", encoding="ascii") as lines:
        cuda = Cuda()
        cuda.begin()
        replay(cuda, lines, arguments.speed, arguments.least)


if __name__ == "__main__":
    main()
