# SPDX-License-Identifier: MIT
"""Reads a PyTorch memory snapshot from standard input and writes a trace of the library's own form to standard output, which
is a file. `vpmm trace` and `vpmm replay` start it. What is wrong is one line on standard error, and exit status 2."""
import gc
import sys
from heapq import merge
from pathlib import Path
from typing import Dict, Iterator, Set, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import native  # noqa: E402
from history import live_before, mapped_before  # noqa: E402
from plain_pickle import NotPlain, load  # noqa: E402
from snapshot import (ALLOC, FREE_COMPLETED, FREE_REQUESTED, MAP, OOM, UNMAP, Device, Event,  # noqa: E402
                      NotSnapshot, devices_of)


def write_before(writer: native.Writer, number: int, device: Device) -> None:
    for address, n_bytes in mapped_before(device):
        writer.add(native.GROW, 0, address, n_bytes, 0, number)
    for address, (n_bytes, stream) in live_before(device).items():
        if address:
            writer.add(native.MALLOC, 0, address, n_bytes, stream, number, native.IS_ASYNC)


def write_event(writer: native.Writer, number: int, us: int, event: Event, requested: Set[Tuple[int, int]]) -> None:
    """`requested`: blocks of which the free was asked for; that it is complete later is no free of its own."""
    block = (number, event.address)
    if event.action == FREE_COMPLETED and block in requested:
        requested.discard(block)
        return
    if event.action == FREE_REQUESTED:
        requested.add(block)
    kinds = {ALLOC: [native.MALLOC], OOM: [native.MALLOC], FREE_REQUESTED: [native.FREE], FREE_COMPLETED: [native.FREE],
             MAP: [native.GROW], UNMAP: [native.UNMAP, native.RELEASE]}[event.action]
    flags = {ALLOC: native.IS_ASYNC, OOM: native.IS_ASYNC | native.IS_FAILED, FREE_REQUESTED: native.IS_ASYNC,
             FREE_COMPLETED: native.IS_ASYNC}.get(event.action, 0)
    for kind in kinds:
        writer.add(kind, us, event.address, event.n_bytes, event.stream, number, flags)


def events_of(devices: Dict[int, Device]) -> Iterator[Tuple[int, int, Event]]:
    """(time, device, event) of all devices in the order of time."""
    return merge(*([(event.us, number, event) for event in device.events] for number, device in sorted(devices.items())),
                 key=lambda item: item[:2])


def write(devices: Dict[int, Device]) -> None:
    start_us = min((device.events[0].us for device in devices.values() if device.events), default=0)
    requested: Set[Tuple[int, int]] = set()
    writer = native.Writer(sys.stdout.buffer, "PyTorch", start_us)
    for number, device in sorted(devices.items()):
        write_before(writer, number, device)
    for us, number, event in events_of(devices):
        write_event(writer, number, us - start_us, event, requested)
    writer.finish()


def main() -> int:
    # Nothing here refers to itself, and looking for what does takes longer than all the rest.
    gc.disable()
    try:
        write(devices_of(load(sys.stdin.buffer)))
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
