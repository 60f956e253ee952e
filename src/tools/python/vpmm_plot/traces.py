# SPDX-License-Identifier: MIT
"""Reads a trace of the library's own form, whose layout src/lib/recorder/format.h tells. Other forms are converted to it first.

All entries of a file are in memory at once: 40 bytes each, and as much again while a picture is worked out."""
from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import List, NamedTuple, Optional

import numpy

from failures import Failure, Wrong

MAGIC, VERSIONS = b"VPMMTRC\n", (1, 2, 3)
HEADER = numpy.dtype([
    ("magic", "S8"), ("version", "<u4"), ("header_bytes", "<u4"), ("chunk_bytes", "<u4"), ("entry_bytes", "<u4"),
    ("pid", "<u8"), ("start_unix_ns", "<u8"), ("max_bytes", "<u8"), ("n_chunks", "<u8"), ("dropped", "<u8"),
    ("is_ended", "<u4"), ("reserved", "<u4"), ("program", "S64"), ("vpmm_version", "S32")])
CHUNK = numpy.dtype([("magic", "<u4"), ("n_entries", "<u4"), ("thread", "<u8"), ("is_shared", "<u4"), ("reserved", "<u4", 11)])
ENTRY = numpy.dtype([
    ("ns", "<u8"), ("duration_ns", "<u4"), ("kind", "u1"), ("path", "u1"), ("device", "u1"), ("flags", "u1"),
    ("address", "<u8"), ("bytes", "<u8"), ("stream", "<u8")])
HEADER_BYTES, CHUNK_MAGIC = 4096, 0x4b4e4843
CHUNK_BYTES_LEAST, CHUNK_BYTES_MOST = 4096, 1 << 24

NOTHING, MALLOC, FREE, GROW, STITCH, UNMAP, RELEASE, HOST_WAIT, STREAM_WAIT, FIGURES, THREAD = range(11)
KINDS = 14  # those of weights are between
BY_REVIVE, BY_CUDA = 4, 32
IS_FAILED = 2
DEVICE_UNKNOWN = 255
PATHS = ["not known", "cache", "habit", "fit", "revive", "stitch", "grow", "pool"]
# No honest entry is beyond these, unless it failed, and below them no sum of ours overflows.
NS_MOST, ADDRESS_MOST, BYTES_MOST = 1 << 60, 1 << 62, 1 << 52


class Trace(NamedTuple):
    """`entries` are in the order in which they took effect."""
    label: str
    program: str
    entries: numpy.ndarray
    dropped: int
    is_ended: bool

    def devices(self) -> List[int]:
        """That have entries, the one with the most first. Entries of no known device are nobody's, unless all are."""
        counts = numpy.bincount(self.entries["device"], minlength=DEVICE_UNKNOWN + 1)
        known = [int(device) for device in numpy.argsort(-counts, kind="stable") if counts[device]]
        return [device for device in known if device != DEVICE_UNKNOWN] or known


def moments(entries: numpy.ndarray) -> numpy.ndarray:
    """When each entry took effect, in ns: a request at its end, all else at its beginning. So an address that one thread
    frees while another's request already waits for it changes owners in the right order."""
    is_request = entries["kind"] == MALLOC
    return entries["ns"].astype(numpy.float64) + numpy.where(is_request, entries["duration_ns"], 0)


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
    if head["version"] not in VERSIONS:
        raise Wrong(f"{path}: a trace of version {head['version']}; this command reads versions {VERSIONS[0]} to {VERSIONS[-1]}")
    if (head["header_bytes"] != HEADER_BYTES or head["entry_bytes"] != ENTRY.itemsize or head["chunk_bytes"] % 8 or
            not CHUNK_BYTES_LEAST <= head["chunk_bytes"] <= CHUNK_BYTES_MOST):
        raise Wrong(f"{path}: no trace: a header of {head['header_bytes']} bytes, chunks of {head['chunk_bytes']} and "
                    f"entries of {head['entry_bytes']}")
    return head


def _bad(entries: numpy.ndarray) -> numpy.ndarray:
    """Which of them no program can have caused. One that failed tells what was asked for, whatever that was."""
    is_figures = entries["kind"] == FIGURES
    counts = (entries["bytes"] > BYTES_MOST) | (entries["address"] > numpy.where(is_figures, BYTES_MOST, ADDRESS_MOST))
    counts |= is_figures & (entries["stream"] > BYTES_MOST)
    return (entries["kind"] >= KINDS) | (entries["ns"] > NS_MOST) | (counts & (entries["flags"] & IS_FAILED == 0))


def _chunk(path: Path, data: numpy.ndarray, start: int, chunk_bytes: int) -> Optional[numpy.ndarray]:
    """The entries of the chunk there; None where none was written yet."""
    rest = data[start:start + chunk_bytes]
    if rest.size < CHUNK.itemsize:
        raise Wrong(f"{path}: the trace is cut off at byte {data.size}, before a chunk")
    head = rest[:CHUNK.itemsize].view(CHUNK)[0]
    if head["magic"] == 0 and head["n_entries"] == 0:
        return None
    n_entries = int(head["n_entries"])
    end = CHUNK.itemsize + n_entries * ENTRY.itemsize
    if head["magic"] != CHUNK_MAGIC or end > chunk_bytes:
        raise Wrong(f"{path}: no chunk of a trace at byte {start}")
    if end > rest.size:
        raise Wrong(f"{path}: the trace is cut off at byte {data.size}, in a chunk of {n_entries} entries")
    entries = rest[CHUNK.itemsize:end].view(ENTRY)
    bad = _bad(entries)
    if bad.any():
        at = start + CHUNK.itemsize + int(numpy.argmax(bad)) * ENTRY.itemsize
        raise Wrong(f"{path}: no entry of a trace at byte {at}")
    return entries[(entries["kind"] != NOTHING) & (entries["kind"] != THREAD)]


def read_native(path: Path, label: str) -> Trace:
    """Raises Wrong for a file that is no whole trace, OSError."""
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    head = _head(path, data)
    chunk_bytes, written = int(head["chunk_bytes"]), []
    for number in range(int(head["n_chunks"])):
        chunk = _chunk(path, data, HEADER_BYTES + number * chunk_bytes, chunk_bytes)
        written += [chunk] if chunk is not None else []
    entries = numpy.concatenate(written) if written else numpy.empty(0, ENTRY)
    entries = entries[numpy.argsort(moments(entries), kind="stable")]
    program = plain(bytes(head["program"]).decode("utf-8", "replace"))
    return Trace(label, program, entries, int(head["dropped"]), bool(head["is_ended"]))


def convert(path: Path, vpmm: Path, to: Path) -> None:
    """By `vpmm trace convert`, whose last words are ours where it fails."""
    # A Path loses the ./ before a hyphen, without which the command takes the name for an option or for standard input.
    name = f"./{path}" if str(path).startswith("-") else str(path)
    try:
        done = subprocess.run([str(vpmm), "trace", "convert", name, "--to", "vpmm", "-o", str(to)],
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
