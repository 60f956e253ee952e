# SPDX-License-Identifier: MIT
"""Writes a trace of the library's own form, as src/lib/recorder/format.h has it. All entries are of one thread that is not known."""
import struct
from typing import BinaryIO

NOTHING, MALLOC, FREE, GROW, STITCH, UNMAP, RELEASE = range(7)
IS_ASYNC, IS_FAILED = 1, 2

HEADER = struct.Struct("<8sIIIIQQQQQII64s32s")
CHUNK = struct.Struct("<IIQ48x")
ENTRY = struct.Struct("<QIBBBBQQQ")
MAGIC, VERSION, CHUNK_MAGIC = b"VPMMTRC\n", 1, 0x4B4E4843
HEADER_BYTES, CHUNK_BYTES = 4096, 16384
CHUNK_ENTRIES = (CHUNK_BYTES - CHUNK.size) // ENTRY.size


class Writer:
    """`file` can be sought: its header is written last."""

    def __init__(self, file: BinaryIO, program: str, start_unix_us: int):
        self._file, self._program, self._start_unix_us = file, program, start_unix_us
        self._entries, self._n_chunks = [], 0
        file.write(bytes(HEADER_BYTES))

    def add(self, kind: int, us: int, address: int, n_bytes: int, stream: int, device: int, flags: int = 0) -> None:
        self._entries.append(ENTRY.pack(us * 1000, 0, kind, 0, device, flags, address, n_bytes, stream))
        if len(self._entries) == CHUNK_ENTRIES:
            self._end_chunk()

    def _end_chunk(self) -> None:
        chunk = CHUNK.pack(CHUNK_MAGIC, len(self._entries), 0) + b"".join(self._entries)
        self._file.write(chunk.ljust(CHUNK_BYTES, b"\0"))
        self._entries, self._n_chunks = [], self._n_chunks + 1

    def finish(self) -> None:
        if self._entries:
            self._end_chunk()
        self._file.seek(0)
        self._file.write(HEADER.pack(MAGIC, VERSION, HEADER_BYTES, CHUNK_BYTES, ENTRY.size, 0, self._start_unix_us * 1000,
                                     0, self._n_chunks, 0, 1, 0, self._program.encode(), b""))
        self._file.flush()
