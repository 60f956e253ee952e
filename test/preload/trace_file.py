# SPDX-License-Identifier: MIT
"""Reads the traces of the library, as docs/TRACE.md tells, without anything of the library's own: for tests."""
import collections
import struct

HEADER = struct.Struct("<8s4I5Q2I64s32s")
CHUNK = struct.Struct("<IIQI44x")
ENTRY = struct.Struct("<QI4B3Q")
CHUNK_MAGIC = 0x4b4e4843
KINDS = ["nothing", "malloc", "free", "grow", "stitch", "unmap", "release", "host_wait", "stream_wait", "figures", "thread"]
PATHS = ["nobody", "cache", "habit", "fit", "revive", "stitch", "grow", "pool"]
REASONS = ["cuda", "small", "large", "capturing", "no_context", "no_vmm", "explicit_pool", "other_pool", "pool_limit",
           "no_peer", "no_ipc", "disabled", "limited", "full", "other"]

RUNGS = ("", "habit", "spare", "follow", "settle", "gather", "ask", "early_wait", "slack", "free_wait", "create", "reap",
         "host_wait", "device_wait", "poll", "neighbour", "spot")

Entry = collections.namedtuple("Entry", "ns duration_ns kind path device flags address bytes stream thread")


def path_name(number):
    return REASONS[number - 32] if number >= 32 else PATHS[number]


class Trace:
    """A whole trace: `header` by names, `chunks` as lists of entries in the order of the file, `entries` in the order
    in which they took effect."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        names = ("magic version header_bytes chunk_bytes entry_bytes pid start_unix_ns max_bytes n_chunks dropped is_ended "
                 "reserved program vpmm_version").split()
        self.bytes = len(data)
        self.header = dict(zip(names, HEADER.unpack_from(data)))
        for name in ("program", "vpmm_version"):
            self.header[name] = self.header[name].split(b"\0")[0].decode()
        assert self.header["magic"] == b"VPMMTRC\n" and self.header["version"] == 2
        assert self.header["chunk_bytes"] == 16384 and self.header["entry_bytes"] == ENTRY.size
        self.chunks = [self.read_chunk(data, i) for i in range(self.header["n_chunks"])]
        self.entries = sorted((entry for chunk in self.chunks for entry in chunk),
                              key=lambda e: e.ns + (e.duration_ns if e.kind == "malloc" else 0))

    def read_chunk(self, data, number):
        at = self.header["header_bytes"] + number * self.header["chunk_bytes"]
        magic, n, thread, is_shared = CHUNK.unpack_from(data, at)
        if magic != CHUNK_MAGIC:
            assert not any(data[at:at + self.header["chunk_bytes"]])
            return []
        entries = []
        for i in range(n):
            ns, duration, kind, path, device, flags, address, bytes_, stream = ENTRY.unpack_from(
                data, at + CHUNK.size + i * ENTRY.size)
            if KINDS[kind] == "thread":
                assert is_shared
                thread = address
                continue
            entries.append(Entry(ns, duration, KINDS[kind], path_name(path), device, flags, address, bytes_, stream, thread))
        return entries

    def of(self, *kinds):
        return [entry for entry in self.entries if entry.kind in kinds]

    def sum(self, kind):
        return sum(entry.bytes for entry in self.of(kind))
