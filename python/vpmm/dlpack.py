# SPDX-License-Identifier: MIT
"""Tensors over device memory that somebody else owns, by DLPack (dmlc/dlpack, include/dlpack/dlpack.h, version 0):
whoever takes one asks the driver nothing about the address, which need not be mapped yet."""
import ctypes

CUDA, UINT = 2, 1


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]

_alive = {}


@DELETER
def _delete(managed):
    _alive.pop(ctypes.addressof(managed.contents), None)


def capsule_at(address, n_bytes, device):
    """A capsule of `n_bytes` bytes at an address of a CUDA device."""
    shape = (ctypes.c_int64 * 1)(n_bytes)
    managed = Managed(tensor=Tensor(data=address, device_type=CUDA, device_id=device, ndim=1, code=UINT, bits=8,
                                    lanes=1, shape=shape, strides=None, byte_offset=0),
                      context=None, deleter=_delete)
    _alive[ctypes.addressof(managed)] = (managed, shape)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(managed), b"dltensor", None)


def tensor_at(torch, address, n_bytes, device):
    """The same as a tensor of bytes."""
    return torch.utils.dlpack.from_dlpack(capsule_at(address, n_bytes, device))
