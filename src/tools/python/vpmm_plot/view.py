# SPDX-License-Identifier: MIT
"""What a picture shows of one trace: one device of it, from one moment to another."""
from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy

import blocks as pairing
import series
import traces
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

    def shown_blocks(self) -> Blocks:
        return self.blocks.between(self.first, self.last)


def chosen_time(name: str, first: float, last: float, begin_ns: Optional[float],
                end_ns: Optional[float]) -> Tuple[float, float]:
    """The part asked for of what there is. Raises Wrong where that is nothing."""
    begin, end = (first if begin_ns is None else begin_ns), (last if end_ns is None else end_ns)
    if begin >= last or end <= first:
        raise Wrong(f"{name}: goes from {units.time_text(first)} to {units.time_text(last)}, and has nothing in the time "
                    "asked for")
    return max(begin, first), min(end, last)


def _ends(entries: numpy.ndarray, blocks: Blocks) -> Tuple[float, float]:
    first, last = float(entries["ns"].min()), float(traces.moments(entries).max())
    freed = blocks.end[numpy.isfinite(blocks.end)]
    return first, max(last, float(freed.max()) if freed.size else last, first + 1)


def view_of(trace: Trace, device: Optional[int], begin_ns: Optional[float], end_ns: Optional[float]) -> View:
    """`device` None: the one with the most entries. Raises Failure."""
    devices = trace.devices()
    if not devices:
        raise Failure(f"{trace.label}: the trace has no entries")
    chosen = devices[0] if device is None else device
    if chosen not in devices:
        known = ", ".join(str(number) for number in sorted(devices))
        raise Failure(f"{trace.label}: has no entries of device {chosen}, but of {known}")
    # What the library did not serve may be of no known device; where there is but one, it is of that.
    whose = [chosen, traces.DEVICE_UNKNOWN] if len(devices) == 1 else [chosen]
    blocks = pairing.paired(trace.entries)
    blocks = blocks.chosen(numpy.isin(blocks.device, whose))
    entries = trace.entries[numpy.isin(trace.entries["device"], whose)]
    first, last = chosen_time(trace.label, *_ends(entries, blocks), begin_ns, end_ns)
    return View(trace.label, trace, chosen, len(devices), entries, blocks, series.memory_of(entries, blocks), first, last)
