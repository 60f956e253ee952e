# SPDX-License-Identifier: MIT
"""Reads a PyTorch memory snapshot from standard input and writes a trace of the library's own form to standard output, which
is a file. `vpmm trace` and `vpmm replay` start it. What is wrong is one line on standard error, and exit status 2."""
import gc
import os
import resource
import sys
from heapq import merge
from itertools import starmap
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, Set, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import native  # noqa: E402
from history import before  # noqa: E402
from plain_pickle import NotPlain, Walk  # noqa: E402
from snapshot import (ALLOC, FREE_COMPLETED, FREE_REQUESTED, MAP, OOM, UNMAP, WORDS, Device, Items,  # noqa: E402
                      NotSnapshot, devices_of)
from spool import Event, Spool  # noqa: E402

# What no file should need: most of it is the interpreter's own, and what is live in a snapshot takes a few times its bytes.
MEMORY_LEAST = 1 << 29
MEMORY_A_BYTE = 16

# After the first event, whatever it is: a trace counts fewer than 2^60 nanoseconds.
US_MOST = (1 << 60) // 1000 - 1

# Action: kinds of entries and their flags.
ENTRIES = {ALLOC: ([native.MALLOC], native.IS_ASYNC), OOM: ([native.MALLOC], native.IS_ASYNC | native.IS_FAILED),
           FREE_REQUESTED: ([native.FREE], native.IS_ASYNC), FREE_COMPLETED: ([native.FREE], native.IS_ASYNC),
           MAP: ([native.GROW], 0), UNMAP: ([native.UNMAP, native.RELEASE], 0)}


def limit_memory(file_bytes: int) -> None:
    wanted = MEMORY_LEAST + MEMORY_A_BYTE * file_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


def write_before(writer: native.Writer, number: int, device: Device) -> None:
    mapped, live = before(device)
    for address, n_bytes in mapped:
        writer.add(native.GROW, 0, address, n_bytes, 0, number)
    for address, (n_bytes, stream) in live.items():
        if address:
            writer.add(native.MALLOC, 0, address, n_bytes, stream, number, native.IS_ASYNC)


def events_of(number: int, device: Device) -> Iterator[Tuple[int, int, Event]]:
    """(time, device, event)"""
    return ((event[0], number, event) for event in device.events)


def write(devices: Dict[int, Device], file: BinaryIO) -> None:
    start_us = min((next(iter(device.events))[0] for device in devices.values() if device.events), default=0)
    writer = native.Writer(file, "PyTorch", start_us)
    for number, device in sorted(devices.items()):
        write_before(writer, number, device)
    # Blocks of each device of which the free was asked for; that it is complete later is no free of its own.
    requested: Dict[int, Set[int]] = {number: set() for number in devices}
    for us, number, (_, address, n_bytes, stream, action) in merge(*starmap(events_of, devices.items())):
        if action == FREE_COMPLETED and address in requested[number]:
            requested[number].discard(address)
            continue
        if action == FREE_REQUESTED:
            requested[number].add(address)
        if us - start_us > US_MOST:
            raise NotSnapshot(f"device {number}: the times of its events are too far apart, or only some have one")
        kinds, flags = ENTRIES[action]
        for kind in kinds:
            writer.add(kind, us - start_us, address, n_bytes, stream, number, flags)
    writer.finish()


def main() -> int:
    # Nothing here refers to itself, and looking for what does takes longer than all the rest.
    gc.disable()
    limit_memory(os.fstat(sys.stdin.fileno()).st_size)
    try:
        with Spool() as spool:
            write(devices_of(Walk(sys.stdin.buffer, WORDS, lambda: Items(spool)).run()), sys.stdout.buffer)
    except (NotPlain, NotSnapshot) as error:
        print(f"not a snapshot of PyTorch: {error}"[:200].replace("\n", " "), file=sys.stderr)
        return 2
    except MemoryError:
        print("not a snapshot of PyTorch: it takes far more memory than a file of its size would", file=sys.stderr)
        return 2
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
