# SPDX-License-Identifier: MIT
"""What a picture shows of one trace: one device of it, from one moment to another."""
from __future__ import annotations

from typing import NamedTuple, Optional

import numpy

import blocks as pairing
import series
import units
from blocks import Blocks
from failures import Failure, Wrong
from series import Memory
from traces import Trace


class View(NamedTuple):
    """Times in nanoseconds since the trace began; `entries` of the device alone, and all of its time."""
    name: str
    trace: Trace
    device: int
    n_devices: int
    entries: numpy.ndarray
    blocks: Blocks
    memory: Memory
    first: float
    last: float

    @property
    def has_blocks(self) -> bool:
        return bool(self.blocks.between(self.first, self.last).start.size)


def _ends(trace: Trace, device: int, blocks: Blocks, begin_ns: Optional[float], end_ns: Optional[float]) -> tuple:
    entries = trace.entries
    moments = pairing.moments(entries)
    first, last = float(entries["ns"].min()), float(moments.max())
    freed = blocks.end[numpy.isfinite(blocks.end)]
    last = max(last, float(freed.max()) if freed.size else last, first + 1)
    chosen = (first if begin_ns is None else begin_ns), (last if end_ns is None else end_ns)
    if chosen[0] >= last or chosen[1] <= first:
        raise Wrong(f"{trace.label}: it has entries from {units.time_text(first)} to {units.time_text(last)}, "
                    "none in the time asked for")
    return max(chosen[0], first), min(chosen[1], last)


def view_of(trace: Trace, device: Optional[int], begin_ns: Optional[float], end_ns: Optional[float]) -> View:
    """`device` None: the one with the most entries. Raises Failure."""
    devices = trace.devices()
    if not devices:
        raise Failure(f"{trace.label}: the trace has no entries")
    chosen = devices[0] if device is None else device
    if chosen not in devices:
        known = ", ".join(str(number) for number in sorted(devices))
        raise Wrong(f"{trace.label}: has no entries of device {chosen}, but of {known}")
    entries = trace.of_device(chosen).entries
    blocks = pairing.paired(entries)
    first, last = _ends(trace.of_device(chosen), chosen, blocks, begin_ns, end_ns)
    return View(trace.label, trace, chosen, len(devices), entries, blocks, series.memory_of(entries, blocks), first, last)
