# SPDX-License-Identifier: MIT
"""Memory over time: bytes live, held and pending as steps, and what of them is worth drawing."""
from __future__ import annotations

from typing import NamedTuple, Optional

import numpy

import traces
from blocks import Blocks


class Steps(NamedTuple):
    """From `when[i]` (ns) on, the level is `level[i]`; before the first one it is 0."""
    when: numpy.ndarray
    level: numpy.ndarray

    def at(self, moment: float) -> float:
        place = int(numpy.searchsorted(self.when, moment, side="right")) - 1
        return float(self.level[place]) if place >= 0 else 0.0

    def clipped(self, first: float, last: float) -> Steps:
        """From the level at `first` to that at `last`."""
        inside = (self.when > first) & (self.when < last)
        return Steps(numpy.concatenate(([first], self.when[inside], [last])),
                     numpy.concatenate(([self.at(first)], self.level[inside], [self.at(last)])))

    def thinned(self, columns: int) -> Steps:
        """The first, last, lowest and highest of each of so many columns: what is left looks the same."""
        if self.when.size <= 4 * columns:
            return self
        span = max(self.when[-1] - self.when[0], 1.0)
        column = numpy.minimum((self.when - self.when[0]) / span * columns, columns - 1).astype(numpy.int64)
        begins = numpy.flatnonzero(numpy.append(True, column[1:] != column[:-1]))
        ends = numpy.append(begins[1:], column.size) - 1
        by_level = numpy.lexsort((self.level, column))
        kept = numpy.unique(numpy.concatenate((begins, ends, by_level[begins], by_level[ends])))
        return Steps(self.when[kept], self.level[kept])


class Peak(NamedTuple):
    when: float
    bytes: float


class Memory(NamedTuple):
    """Of one device. `passed` is the part of `live` that CUDA's own functions served, which is not in `held`; `held` and
    `pending` are None where the trace does not tell them."""
    live: Steps
    passed: Steps
    held: Optional[Steps]
    pending: Optional[Steps]
    failed: numpy.ndarray  # when requests were refused


def peak_of(steps: Steps) -> Peak:
    if steps.when.size == 0:
        return Peak(0.0, 0.0)
    place = int(numpy.argmax(steps.level))
    return Peak(float(steps.when[place]), float(steps.level[place]))


def live_of(blocks: Blocks) -> Steps:
    is_freed = numpy.isfinite(blocks.end)
    when = numpy.concatenate((blocks.start, blocks.end[is_freed]))
    change = numpy.concatenate((blocks.bytes, -blocks.bytes[is_freed]))
    # Where an address is given out again without a free between, the old block goes first.
    place = numpy.concatenate((2 * blocks.began, 2 * blocks.ended[is_freed] - 1))
    order = numpy.lexsort((place, when))
    return Steps(when[order], numpy.cumsum(change[order]))


def _held_of(entries: numpy.ndarray) -> Optional[Steps]:
    """Memory grown less memory released, put right by each count of the library's own."""
    kind = entries["kind"]
    chosen = entries[numpy.isin(kind, (traces.GROW, traces.RELEASE, traces.FIGURES))]
    if chosen.size == 0:
        return None
    when = traces.moments(chosen)
    order = numpy.argsort(when, kind="stable")
    chosen, when = chosen[order], when[order]
    counts = chosen["bytes"].astype(numpy.float64)
    change = numpy.where(chosen["kind"] == traces.GROW, counts,
                         numpy.where(chosen["kind"] == traces.RELEASE, -counts, 0))
    level = numpy.cumsum(change)
    figures = numpy.flatnonzero(chosen["kind"] == traces.FIGURES)
    if figures.size:
        surplus = chosen["address"][figures].astype(numpy.float64) - level[figures]
        last = numpy.searchsorted(figures, numpy.arange(chosen.size), side="right") - 1
        level = level + numpy.where(last >= 0, surplus[numpy.maximum(last, 0)], 0)
    return Steps(when, numpy.maximum(level, 0))


def memory_of(entries: numpy.ndarray, blocks: Blocks) -> Memory:
    figures = entries[entries["kind"] == traces.FIGURES]
    pending = Steps(figures["ns"].astype(numpy.float64), figures["stream"].astype(numpy.float64)) if figures.size else None
    is_failed = (entries["kind"] == traces.MALLOC) & (entries["flags"] & traces.IS_FAILED != 0)
    return Memory(live_of(blocks), live_of(blocks.chosen(blocks.path >= traces.BY_CUDA)), _held_of(entries), pending,
                  entries["ns"][is_failed].astype(numpy.float64))
