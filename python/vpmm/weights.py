# SPDX-License-Identifier: MIT
"""An object of weights, as include/vpmm/vpmm.h has it, with exceptions for results. It knows neither torch nor models:
streams are numbers (CUstream), weights are names and sizes, addresses are numbers."""
import ctypes
import os
from ctypes import byref
from typing import NamedTuple

from . import errors, native
from .sizes import parse_bytes

STREAMED, KEPT, DIRECT = 0, 1, 2
MESSAGE_BYTES = 1024
MESSAGES = {}  # by their number: an object that nobody closes, or that nobody got, still writes there


class Tensor(NamedTuple):
    """A tensor of a file."""
    dtype: str
    shape: tuple
    n_bytes: int
    offset: int


class Weights:
    """Device memory for weights within a budget. Passes are made of begin, use and done for each group, end. One
    thread at a time; a current context of the device is needed."""

    def __init__(self, budget, device=0, chunk=0, ring=0, host=0, follow=False, check=False, must_map=False,
                 stage=False, promote=0):
        self._table = native.table()
        self._message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self._handle = ctypes.c_void_p()
        self._now, self._checks, self._all_bytes = native.sized(native.Stats), check, 0
        self._n_bytes = {}
        self.staged = []  # for each file that could not be registered, why
        flags = 1 * follow | 2 * check | 4 * must_map | 8 * stage
        options = native.sized(native.Options, device=device, flags=flags, budget_bytes=parse_bytes(budget),
                               chunk_bytes=parse_bytes(chunk), ring_bytes=parse_bytes(ring),
                               host_bytes_max=parse_bytes(host), message=ctypes.addressof(self._message),
                               message_bytes=MESSAGE_BYTES, promote_bytes=parse_bytes(promote))
        MESSAGES[id(self._message)] = self._message
        try:
            self._check(self._table.weights_make(byref(options), byref(self._handle)))
        except Exception:
            del MESSAGES[id(self._message)]
            raise

    def _check(self, result, floor=0):
        if result:
            message = self._message.value.decode(errors="replace")
            self._message.value = b""
            raise errors.of_result(result, message, floor)

    def _call(self, name, *arguments):
        self._check(getattr(self._table, f"weights_{name}")(self._handle, *arguments))

    def close(self):
        """Waits for the device's work and gives everything back."""
        handle, self._handle = self._handle, ctypes.c_void_p()  # an interrupt must not lead to another close of it
        if handle:
            try:
                self._check(self._table.weights_destroy(handle))
            except Exception:
                self._handle = handle
                raise
            del MESSAGES[id(self._message)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- before the seal ----

    def open(self, path):
        """Opens a safetensors file: its number, and its tensors by name."""
        number = ctypes.c_uint32()
        self._message.value = b""
        self._call("open", os.fsencode(path), byref(number))
        if self._message.value:
            self.staged.append(self._message.value.decode(errors="replace"))
        found, tensor = {}, native.sized(native.Tensor)
        while self._table.weights_tensor(self._handle, number, len(found), byref(tensor)) == 0:
            shape = tuple(tensor.shape[:tensor.n_dimensions])
            found[tensor.name.decode()] = Tensor(tensor.dtype.decode(), shape, tensor.bytes, tensor.offset)
        self._message.value = b""
        return number.value, found

    def add(self, name, group, n_bytes, kind=STREAMED):
        """Adds a weight: its number, and its address on the device."""
        address, number = ctypes.c_uint64(), ctypes.c_uint32()
        weight = native.sized(native.Weight, name=name.encode(), kind=kind, group=group, bytes=n_bytes)
        self._call("add", byref(weight), byref(address), byref(number))
        self._n_bytes[number.value] = n_bytes
        return number.value, address.value

    def fill_from(self, number, source, tensor):
        """The weight's bytes are a tensor's of an open file."""
        self._call("from", number, source, tensor.encode())

    def fill(self, number, data):
        """Copies the weight's bytes into pinned memory. `data`: a buffer of as many."""
        memory, view = ctypes.c_void_p(), memoryview(data).cast("B")
        n_bytes = self._n_bytes.get(number, len(view))
        if len(view) != n_bytes:
            raise ValueError(f"weight {number} has {n_bytes} bytes, and the data has {len(view)}")
        self._call("host", number, byref(memory))
        ctypes.memmove(memory, bytes(view), len(view))

    def order(self, groups):
        """The order of uses, where it is known before the first pass."""
        self._call("order", (ctypes.c_uint32 * len(groups))(*groups), len(groups))

    def seal(self):
        """Takes the memory; what is needed, in bytes."""
        need = native.sized(native.Need)
        self._check(self._table.weights_seal(self._handle, byref(need)), need.floor_bytes)
        self._all_bytes = need.all_bytes
        return _need(need)

    # ---- passes ----

    def begin(self, stream=None):
        self._call("begin", stream)

    def use(self, group, stream=None):
        self._call("use", group, stream)

    def done(self, group, stream=None):
        self._call("done", group, stream)

    def end(self, stream=None):
        self._call("end", stream)

    def cancel(self, stream=None):
        """Ends a pass that something else broke off."""
        self._call("cancel", stream)

    def budget(self, size):
        """Another budget from now on; between passes."""
        need = native.sized(native.Need)
        self._check(self._table.weights_budget(self._handle, parse_bytes(size), byref(need)), need.floor_bytes)
        self._all_bytes = need.all_bytes
        return _need(need)

    def thaw(self):
        """No graph of a captured pass will be launched any more. Waits for the device."""
        self._call("thaw")

    def is_whole(self):
        """Whether nothing is streamed: until the end of the pass under way, or the next change of the budget."""
        self._check(self._table.weights_stats(self._handle, byref(self._now)))
        return not self._checks and self._now.budget_bytes >= self._all_bytes

    def stats(self):
        """All figures by name, and `bound_share`: the least time for what timed passes copied, as a share of theirs."""
        stats = native.sized(native.Stats)
        self._check(self._table.weights_stats(self._handle, byref(stats)))
        figures = {name: getattr(stats, name) for name in native.FIGURES}
        return {**figures, "bound_share": figures["bound_ns"] / figures["pass_ns"] if figures["pass_ns"] else None}


def _need(need):
    return {name: getattr(need, f"{name}_bytes") for name in ("floor", "smooth", "all", "host")}
