# SPDX-License-Identifier: MIT
"""The table of functions that a preloaded libvpmm.so has (struct vpmm_interface of include/vpmm/vpmm.h)."""
import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

from . import errors


class Options(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("device", c_int), ("flags", c_uint), ("budget_bytes", c_uint64),
                ("chunk_bytes", c_uint64), ("ring_bytes", c_uint64), ("host_bytes_max", c_uint64),
                ("message", c_void_p), ("message_bytes", c_size_t), ("promote_bytes", c_uint64)]


class Weight(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("name", c_char_p), ("kind", c_int), ("group", c_uint32),
                ("bytes", c_uint64)]


class Tensor(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("name", c_char_p), ("dtype", c_char_p), ("n_dimensions", c_uint32),
                ("shape", c_uint64 * 16), ("offset", c_uint64), ("bytes", c_uint64)]


class Need(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("floor_bytes", c_uint64), ("smooth_bytes", c_uint64),
                ("all_bytes", c_uint64), ("host_bytes", c_uint64)]


FIGURES = ("passes", "captured_passes", "hits", "misses", "late", "evictions", "divergences", "copied_bytes",
           "staged_bytes", "host_waits", "host_wait_ns", "budget_bytes", "held_bytes", "held_peak_bytes",
           "resident_bytes", "ring_bytes", "weight_bytes", "direct_bytes", "host_bytes", "yields",
           "vmm_calls", "timed_passes", "pass_ns", "stall_ns", "bound_ns", "link_bytes_per_s",
           "promoted_bytes", "promotions", "demotions")


class Stats(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t)] + [(name, c_uint64) for name in FIGURES]


def sized(struct, /, **members):
    """A struct that says how long it is."""
    return struct(size_bytes=ctypes.sizeof(struct), **members)


FUNCTIONS = {
    "make": (POINTER(Options), POINTER(c_void_p)),
    "destroy": (c_void_p,),
    "add": (c_void_p, POINTER(Weight), POINTER(c_uint64), POINTER(c_uint32)),
    "host": (c_void_p, c_uint32, POINTER(c_void_p)),
    "read": (c_void_p, c_uint32, c_int, c_uint64),
    "from": (c_void_p, c_uint32, c_uint32, c_char_p),
    "open": (c_void_p, c_char_p, POINTER(c_uint32)),
    "tensor": (c_void_p, c_uint32, c_uint32, POINTER(Tensor)),
    "order": (c_void_p, POINTER(c_uint32), c_uint32),
    "seal": (c_void_p, POINTER(Need)),
    "begin": (c_void_p, c_void_p),
    "use": (c_void_p, c_uint32, c_void_p),
    "done": (c_void_p, c_uint32, c_void_p),
    "end": (c_void_p, c_void_p),
    "cancel": (c_void_p, c_void_p),
    "budget": (c_void_p, c_uint64, POINTER(Need)),
    "thaw": (c_void_p,),
    "stats": (c_void_p, POINTER(Stats)),
}
OTHERS = ("version", "next_device", "snapshot_take", "requests_count", "trim", "reap", "dump")


class Table(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t)] + [(name, c_void_p) for name in OTHERS] + \
               [(f"weights_{name}", ctypes.CFUNCTYPE(c_int, *types)) for name, types in FUNCTIONS.items()]


def table():
    """The table; NotLoaded where there is none, or an older one."""
    try:
        find = ctypes.CDLL(None).vpmm_interface_1
    except AttributeError:
        raise errors.of_result(1, None) from None
    find.restype = POINTER(Table)
    found = find().contents
    if found.size_bytes < ctypes.sizeof(Table):
        raise errors.of_result(7, None)
    return found
