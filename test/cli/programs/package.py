# SPDX-License-Identifier: MIT
"""package.py FILE BUDGET [wait] [BYTES...] [+BYTES...]: the Python package over the simulated device, without torch. Prints what
happened, and what requests of so many bytes are answered once the weights are there, or (+) after some passes. With `wait` it says ready after
some passes and waits for a line."""
import ctypes
import gc
import sys
import weakref
from unittest import mock

import vpmm
from vpmm import native

cuda = ctypes.CDLL("libcuda.so.1")


def must(result):
    assert result == 0, result


def start():
    context = ctypes.c_void_p()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))


def bytes_at(address, n_bytes):
    found = ctypes.create_string_buffer(n_bytes)
    must(cuda.cuMemcpyDtoH_v2(found, ctypes.c_uint64(address), ctypes.c_size_t(n_bytes)))
    return found.raw


def malloc_all(sizes):
    for n_bytes in map(int, sizes):
        print("malloc", cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(n_bytes)))


def drop():
    """An object that nobody closes lives on in the library, and writes where its messages go."""
    message = weakref.ref(vpmm.Weights("64MiB")._message)
    gc.collect()
    print("dropped: its messages have a place", message() is not None)


def interrupt():
    """Nor one that was made when the user interrupted the program."""
    messages = []

    def check(weights, *_):
        messages.append(weakref.ref(weights._message))
        raise KeyboardInterrupt

    try:
        with mock.patch.object(vpmm.Weights, "_check", check):
            vpmm.Weights("64MiB")
    except KeyboardInterrupt:
        gc.collect()
        print("interrupted: its messages have a place", messages[0]() is not None)
    weights = vpmm.Weights("64MiB")
    try:
        with mock.patch.object(vpmm.Weights, "_check", check):
            weights.close()
    except KeyboardInterrupt:
        weights.close()
        print("interrupted, and closed once")


def seal_again(weights, need):
    again = native.sized(native.Need)
    weights._table.weights_seal(weights._handle, ctypes.byref(again))
    print("sealed again: the same need", need == {name: getattr(again, f"{name}_bytes") for name in need})


def play(path, budget):
    with vpmm.Weights(budget) as weights, open(path, "rb") as file:
        source, tensors = weights.open(path)
        data = file.read()
        places = []
        for group, (name, tensor) in enumerate(tensors.items()):
            number, address = weights.add(name, group, tensor.n_bytes)
            weights.fill_from(number, source, name)
            places.append((address, data[tensor.offset:tensor.offset + tensor.n_bytes]))
        number, address = weights.add("by hand", len(places), 1000, vpmm.KEPT)
        try:
            weights.fill(number, b"x" * 1001)
        except ValueError as error:
            print("refused:", error)
        weights.fill(number, b"x" * 1000)
        need = weights.seal()
        print("need", sorted(need))
        seal_again(weights, need)
        malloc_all(word for word in sys.argv[3:] if word.isdigit())
        for _ in range(4):
            weights.begin()
            for group, (place, expected) in enumerate(places):
                weights.use(group)
                assert bytes_at(place, len(expected)) == expected, group
                weights.done(group)
            weights.end()
        assert bytes_at(address, 1000) == b"x" * 1000
        malloc_all(word[1:] for word in sys.argv[3:] if word.startswith("+"))
        if "wait" in sys.argv:
            print("ready", flush=True)
            sys.stdin.readline()
        weights.begin()
        try:
            weights.use(1)
        except vpmm.OtherOrder as error:
            print("refused:", error)
        weights.cancel()
        stats = weights.stats()
        print("yields", stats["yields"], "resident", stats["resident_bytes"] >> 20)
        weights.budget("40MiB")
        stats = weights.stats()
        print("passes", stats["passes"], "held", stats["held_bytes"] == stats["resident_bytes"])


try:
    start()
    if "wait" not in sys.argv:
        drop()
        interrupt()
    play(sys.argv[1], sys.argv[2])
except vpmm.BudgetTooSmall as error:
    print("floor", error.floor, error)
except vpmm.VpmmError as error:
    print(type(error).__name__, error)
