# SPDX-License-Identifier: MIT
"""Reads a pickle that is made of plain containers, numbers and strings, and nothing else: no class, no function and no
object of any is ever looked up, so nothing in the file is ever called."""
import os
import pickle
import resource
from typing import Any, BinaryIO

# A dictionary of six takes some ten times what it takes in a file; what is dear in memory and cheap in a file is an attack.
MEMORY_A_BYTE = 64
MEMORY_LEAST = 1 << 30


class NotPlain(Exception):
    """The file is no pickle, or one that holds more than plain data."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise NotPlain(f"it asks for {module}.{name}, and a snapshot is plain data: nothing of it was run")

    def persistent_load(self, pid):
        raise NotPlain("it refers to objects outside of it, and a snapshot is plain data")


def _limit_memory(file_bytes: int) -> None:
    wanted = MEMORY_LEAST + MEMORY_A_BYTE * file_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


def load(file: BinaryIO) -> Any:
    """Raises NotPlain, MemoryError."""
    _limit_memory(os.fstat(file.fileno()).st_size)
    try:
        return _PlainUnpickler(file).load()
    except (NotPlain, MemoryError):
        raise
    except Exception as error:
        # Whatever a pickle can do wrong: each opcode has exceptions of its own.
        raise NotPlain(f"it is no whole pickle: {error or type(error).__name__}") from error
