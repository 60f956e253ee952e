# SPDX-License-Identifier: MIT
"""Tensors over device memory that somebody else owns, by DLPack (dmlc/dlpack, include/dlpack/dlpack.h, version 0):
whoever takes one asks the driver nothing about the address, which need not be mapped yet. What describes one is the
C library's memory, and its deleter is free: a tensor may outlive this module while the interpreter ends."""
import ctypes

CUDA, UINT = 2, 1


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    """The sizes that `tensor.shape` leads to stand behind it."""
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("sizes", ctypes.c_int64 * 1)]


def capsule_at(address, n_bytes, device):
    """A capsule of `n_bytes` bytes at an address of a CUDA device."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    at = library.malloc(ctypes.sizeof(Managed))
    if not at:
        raise MemoryError
    managed = Managed.from_address(at)
    managed.sizes[0] = n_bytes
    managed.tensor = Tensor(data=address, device_type=CUDA, device_id=device, ndim=1, code=UINT, bits=8, lanes=1,
                            shape=at + Managed.sizes.offset, strides=None, byte_offset=0)
    managed.context, managed.deleter = None, ctypes.cast(library.free, ctypes.c_void_p)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(at, b"dltensor", None)


def tensor_at(torch, address, n_bytes, device):
    """The same as a tensor of bytes."""
    return torch.utils.dlpack.from_dlpack(capsule_at(address, n_bytes, device))
