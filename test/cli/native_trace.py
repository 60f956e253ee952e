# SPDX-License-Identifier: MIT
"""Writes small traces of the library's own form, by the layout of src/lib/recorder/format.h and nothing else."""
import struct
from pathlib import Path

MALLOC, FREE, GROW, STITCH, UNMAP, RELEASE, HOST_WAIT, STREAM_WAIT, FIGURES, THREAD = range(1, 11)
CACHE, HABIT, FIT, REVIVE, BY_STITCH, BY_GROW, POOL, CUDA = 1, 2, 3, 4, 5, 6, 7, 32
IS_ASYNC, IS_FAILED = 1, 2
HEADER_BYTES, CHUNK_BYTES, CHUNK_HEAD_BYTES, CHUNK_MAGIC = 4096, 16384, 64, 0x4B4E4843
CHUNK_ENTRIES = (CHUNK_BYTES - CHUNK_HEAD_BYTES) // 40


def entry(kind, us, address=0, n_bytes=0, stream=0, path=0, device=0, flags=0, duration_ns=0):
    return struct.pack("<QIBBBBQQQ", int(us * 1000), duration_ns, kind, path, device, flags, address, n_bytes, stream)


def header(n_chunks=1, dropped=0, program=b"program", version=2, entry_bytes=40):
    head = struct.pack("<8sIIIIQQQQQII64s32s", b"VPMMTRC\n", version, HEADER_BYTES, CHUNK_BYTES, entry_bytes, 4711,
                       1_700_000_000_000_000_000, 0, n_chunks, dropped, 1, 0, program, b"0.1.0")
    return head.ljust(HEADER_BYTES, b"\0")


def chunk(entries, thread=4711, is_shared=0):
    head = struct.pack("<IIQI", CHUNK_MAGIC, len(entries), thread, is_shared).ljust(CHUNK_HEAD_BYTES, b"\0")
    return (head + b"".join(entries)).ljust(CHUNK_BYTES, b"\0")


def write(path, *threads, **facts):
    """A list of entries for each thread. Returns the path."""
    chunks = [chunk(entries[place:place + CHUNK_ENTRIES], 4711 + number) for number, entries in enumerate(threads)
              for place in range(0, len(entries), CHUNK_ENTRIES)]
    Path(path).write_bytes(header(len(chunks), **facts) + b"".join(chunks))
    return Path(path)
