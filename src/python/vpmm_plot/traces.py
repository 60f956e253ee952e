# SPDX-License-Identifier: MIT
"""Reads a trace of the library's own form, whose layout src/trace/format.h tells. Other forms are converted to it first.

All entries of a file are in memory at once: 40 bytes each, and as much again while a picture is worked out."""
from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import List, NamedTuple, Optional

import numpy

from failures import Failure, Wrong

MAGIC, VERSION = b"VPMMTRC\n", 1
HEADER = numpy.dtype([
    ("magic", "S8"), ("version", "<u4"), ("header_bytes", "<u4"), ("chunk_bytes", "<u4"), ("entry_bytes", "<u4"),
    ("pid", "<u8"), ("start_unix_ns", "<u8"), ("max_bytes", "<u8"), ("n_chunks", "<u8"), ("dropped", "<u8"),
    ("is_ended", "<u4"), ("reserved", "<u4"), ("program", "S64"), ("vpmm_version", "S32")])
CHUNK = numpy.dtype([("magic", "<u4"), ("n_entries", "<u4"), ("thread", "<u8"), ("reserved", "<u8", 6)])
ENTRY = numpy.dtype([
    ("ns", "<u8"), ("duration_ns", "<u4"), ("kind", "u1"), ("path", "u1"), ("device", "u1"), ("flags", "u1"),
    ("address", "<u8"), ("bytes", "<u8"), ("stream", "<u8")])
HEADER_BYTES, CHUNK_BYTES, CHUNK_MAGIC = 4096, 65536, 0x4b4e4843
CHUNK_ENTRIES = (CHUNK_BYTES - CHUNK.itemsize) // ENTRY.itemsize

NOTHING, MALLOC, FREE, GROW, STITCH, UNMAP, RELEASE, HOST_WAIT, STREAM_WAIT, FIGURES, KINDS = range(11)
BY_REVIVE, BY_CUDA = 4, 32
IS_FAILED = 2
PATHS = ["not known", "cache", "habit", "fit", "revive", "stitch", "grow", "pool"]
# No honest entry is beyond these, and below them no sum of ours overflows.
NS_MOST, ADDRESS_MOST, BYTES_MOST = 1 << 60, 1 << 62, 1 << 52


class Trace(NamedTuple):
    """`entries` are in the order of time; of one thread, in the order in which it made them."""
    label: str
    program: str
    entries: numpy.ndarray
    dropped: int
    is_ended: bool

    def devices(self) -> List[int]:
        """That have entries, the one with the most first."""
        counts = numpy.bincount(self.entries["device"], minlength=1)
        return [int(device) for device in numpy.argsort(-counts, kind="stable") if counts[device]]

    def of_device(self, device: int) -> Trace:
        return self._replace(entries=self.entries[self.entries["device"] == device])


def path_name(path: int) -> str:
    if path >= BY_CUDA:
        return "CUDA"
    return PATHS[path] if path < len(PATHS) else PATHS[0]


def plain(text: str) -> str:
    """What may be shown of a text that somebody else wrote."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _head(path: Path, data: numpy.ndarray) -> numpy.void:
    if data.size < HEADER_BYTES:
        raise Wrong(f"{path}: the trace is cut off in its header, after {data.size} bytes")
    head = data[:HEADER.itemsize].view(HEADER)[0]
    if head["version"] != VERSION:
        raise Wrong(f"{path}: a trace of version {head['version']}; this command reads version {VERSION}")
    sizes = (int(head["header_bytes"]), int(head["chunk_bytes"]), int(head["entry_bytes"]))
    if sizes != (HEADER_BYTES, CHUNK_BYTES, ENTRY.itemsize):
        raise Wrong(f"{path}: not a trace: header, chunks and entries of {sizes[0]}, {sizes[1]} and {sizes[2]} bytes, "
                    f"not of {HEADER_BYTES}, {CHUNK_BYTES} and {ENTRY.itemsize}")
    return head


def _chunk(path: Path, data: numpy.ndarray, start: int) -> Optional[numpy.ndarray]:
    """The entries of the chunk there; None where none was written yet."""
    rest = data[start:start + CHUNK_BYTES]
    if rest.size < CHUNK.itemsize:
        raise Wrong(f"{path}: the trace is cut off at byte {data.size}, in the head of a chunk")
    head = rest[:CHUNK.itemsize].view(CHUNK)[0]
    if head["magic"] == 0 and head["n_entries"] == 0:
        return None
    n_entries = int(head["n_entries"])
    if head["magic"] != CHUNK_MAGIC or n_entries > CHUNK_ENTRIES:
        raise Wrong(f"{path}: no chunk of a trace at byte {start}")
    end = CHUNK.itemsize + n_entries * ENTRY.itemsize
    if end > rest.size:
        raise Wrong(f"{path}: the trace is cut off at byte {data.size}, in a chunk of {n_entries} entries")
    entries = rest[CHUNK.itemsize:end].view(ENTRY)
    bad = ((entries["kind"] >= KINDS) | (entries["ns"] > NS_MOST) | (entries["bytes"] > BYTES_MOST) |
           (entries["address"] > ADDRESS_MOST) | ((entries["kind"] == FIGURES) & (
               (entries["address"] > BYTES_MOST) | (entries["stream"] > BYTES_MOST))))
    if bad.any():
        at = start + CHUNK.itemsize + int(numpy.argmax(bad)) * ENTRY.itemsize
        raise Wrong(f"{path}: no entry of a trace at byte {at}")
    return entries[entries["kind"] != NOTHING]


def read_native(path: Path, label: str) -> Trace:
    """Raises Wrong for a file that is no whole trace, OSError."""
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    head = _head(path, data)
    chunks = [_chunk(path, data, start) for start in range(HEADER_BYTES, data.size, CHUNK_BYTES)]
    written = [chunk for chunk in chunks if chunk is not None]
    entries = numpy.concatenate(written) if written else numpy.empty(0, ENTRY)
    entries = entries[numpy.argsort(entries["ns"], kind="stable")]
    program = plain(bytes(head["program"]).decode("utf-8", "replace"))
    return Trace(label, program, entries, int(head["dropped"]), bool(head["is_ended"]))


def convert(path: Path, vpmm: Path, to: Path) -> None:
    """By `vpmm trace convert`, whose last words are ours where it fails."""
    try:
        done = subprocess.run([str(vpmm), "trace", "convert", str(path), "--to", "vpmm", "-o", str(to)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise Failure(f"{path}: {vpmm} cannot be started to convert it: {error.strerror}") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").splitlines() or ["it cannot be converted"]
        said = plain(lines[0]).removeprefix("vpmm trace: ").removeprefix("convert: ")
        kind = Wrong if done.returncode == Wrong.status else Failure
        raise kind(said if str(path) in said else f"{path}: {said}")


def read(path: Path, label: str, vpmm: Path) -> Trace:
    """A trace of any form. Raises Failure."""
    try:
        with open(path, "rb") as file:
            is_native = file.read(len(MAGIC)) == MAGIC
        if is_native:
            return read_native(path, label)
        with tempfile.TemporaryDirectory(prefix="vpmm-plot-") as folder:
            converted = Path(folder) / "trace.vpmm"
            convert(path, vpmm, converted)
            return read_native(converted, label)
    except OSError as error:
        raise Wrong(f"{path}: {error.strerror or error}") from error
