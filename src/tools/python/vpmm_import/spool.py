# SPDX-License-Identifier: MIT
"""Events, kept in a temporary file instead of in memory."""
import struct
import tempfile
from array import array
from typing import Iterator, Tuple

RECORD = struct.Struct("<QQQQB")
CHUNK_BYTES = 2000 * RECORD.size


# Microseconds, address, bytes, stream, action.
Event = Tuple[int, int, int, int, int]


class Spool:
    """The file; many lists of events share it, and end with it. It is in TMPDIR, and has no name."""

    def __init__(self):
        self._file = tempfile.TemporaryFile()
        self._bytes = 0

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def add(self, data: bytes) -> int:
        """Where it is."""
        self._file.seek(self._bytes)
        self._file.write(data)
        self._bytes += len(data)
        return self._bytes - len(data)

    def read(self, place: int, n_bytes: int) -> bytes:
        self._file.seek(place)
        return self._file.read(n_bytes)


class Events:
    """In the order in which they were added."""

    def __init__(self, spool: Spool):
        self._spool = spool
        self._places = array("Q")
        self._open = bytearray()

    def __bool__(self) -> bool:
        return bool(self._places or self._open)

    def add(self, *event: int) -> None:
        """Takes what an event has. Raises struct.error where one is no number from 0 to 2^64 - 1."""
        self._open += RECORD.pack(*event)
        if len(self._open) >= CHUNK_BYTES:
            self._places.append(self._spool.add(self._open))
            self._open = bytearray()

    def __iter__(self) -> Iterator[Event]:
        for place in self._places:
            yield from RECORD.iter_unpack(self._spool.read(place, CHUNK_BYTES))
        yield from RECORD.iter_unpack(self._open)

    def __reversed__(self) -> Iterator[Event]:
        yield from reversed(list(RECORD.iter_unpack(self._open)))
        for place in reversed(self._places):
            yield from reversed(list(RECORD.iter_unpack(self._spool.read(place, CHUNK_BYTES))))
