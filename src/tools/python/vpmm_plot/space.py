# SPDX-License-Identifier: MIT
"""The address space over time: what was mapped, what of it waits to be unmapped, and an axis without the unused gaps."""
from __future__ import annotations

from typing import List, NamedTuple, Tuple

import numpy

import traces

SEGMENTS_MOST = 8
GAP_SHARE = 0.08  # of all that is used: a longer gap is left out of the axis
BREAK_SHARE = 0.012  # of the axis, for each gap that was left out


class Spans(NamedTuple):
    """Rectangles of address and time (ns)."""
    start: numpy.ndarray
    end: numpy.ndarray
    address: numpy.ndarray
    bytes: numpy.ndarray


class Segment(NamedTuple):
    """A part of the address space that the axis shows, and where: a share of it from below."""
    address: float
    bytes: float
    begin: float
    end: float


def spans_of(rows: List[Tuple[float, float, float, float]]) -> Spans:
    table = numpy.array(rows, numpy.float64).reshape(-1, 4)
    return Spans(*(table[:, column] for column in range(4)))


class _Mapped:
    """The mapped parts of the address space at one moment, in order of address: begin, end, mapped since."""

    def __init__(self) -> None:
        self.parts: List[Tuple[float, float, float]] = []
        self.ended: List[Tuple[float, float, float, float]] = []

    def _first_that_ends_behind(self, address: float) -> int:
        low, high = 0, len(self.parts)
        while low < high:
            middle = (low + high) // 2
            if self.parts[middle][1] > address:
                high = middle
            else:
                low = middle + 1
        return low

    def unmap(self, begin: float, end: float, when: float) -> int:
        """Returns the place among the parts at which the range would be."""
        low = high = self._first_that_ends_behind(begin)
        before, behind = [], []
        while high < len(self.parts) and self.parts[high][0] < end:
            part_begin, part_end, since = self.parts[high]
            cut = max(part_begin, begin), min(part_end, end)
            self.ended.append((since, when, cut[0], cut[1] - cut[0]))
            before += [(part_begin, begin, since)] if part_begin < begin else []
            behind += [(end, part_end, since)] if part_end > end else []
            high += 1
        self.parts[low:high] = before + behind
        return low + len(before)

    def map(self, begin: float, end: float, when: float) -> None:
        self.parts.insert(self.unmap(begin, end, when), (begin, end, when))


def mapped_of(entries: numpy.ndarray) -> Tuple[Spans, Spans]:
    """What was mapped, from when to when (infinite: it still is), and what of that an unmap ended."""
    chosen = entries[numpy.isin(entries["kind"], (traces.GROW, traces.STITCH, traces.UNMAP)) & (entries["bytes"] > 0)]
    when = traces.moments(chosen)
    order = numpy.argsort(when, kind="stable")
    mapped = _Mapped()
    unmapped: List[Tuple[float, float, float, float]] = []
    for kind, moment, begin, n_bytes in zip(chosen["kind"][order].tolist(), when[order].tolist(),
                                            chosen["address"][order].astype(numpy.float64).tolist(),
                                            chosen["bytes"][order].astype(numpy.float64).tolist()):
        if kind == traces.UNMAP:
            n_ended = len(mapped.ended)
            mapped.unmap(begin, begin + n_bytes, moment)
            unmapped += mapped.ended[n_ended:]
        else:
            mapped.map(begin, begin + n_bytes, moment)
    still = [(since, numpy.inf, begin, end - begin) for begin, end, since in mapped.parts]
    return spans_of(mapped.ended + still), spans_of(unmapped)


def segments_of(address: numpy.ndarray, n_bytes: numpy.ndarray) -> List[Segment]:
    """The parts of the address space in which any of these ranges lies, long gaps left out. Empty for no range."""
    if address.size == 0:
        return []
    order = numpy.argsort(address, kind="stable")
    begin, end = address[order], numpy.maximum.accumulate((address + n_bytes)[order])
    gaps = numpy.maximum(begin[1:] - end[:-1], 0)
    used = end[-1] - begin[0] - gaps.sum()
    breaks = numpy.flatnonzero(gaps > GAP_SHARE * used)
    breaks = numpy.sort(breaks[numpy.argsort(-gaps[breaks], kind="stable")][:SEGMENTS_MOST - 1])
    lows = begin[numpy.append(0, breaks + 1)]
    sizes = numpy.maximum(end[numpy.append(breaks, end.size - 1)] - lows, 1.0)
    scale = (1 - BREAK_SHARE * breaks.size) / sizes.sum()
    tops = numpy.cumsum(sizes * scale + BREAK_SHARE) - BREAK_SHARE
    return [Segment(float(low), float(size), float(top - size * scale), float(top))
            for low, size, top in zip(lows, sizes, tops)]


def placed(segments: List[Segment], address: numpy.ndarray) -> numpy.ndarray:
    """Where on the axis each address is, 0 to 1; within a gap, at its lower edge."""
    lows = numpy.array([segment.address for segment in segments])
    place = numpy.maximum(numpy.searchsorted(lows, address, side="right") - 1, 0)
    base = lows[place]
    sizes = numpy.array([segment.bytes for segment in segments])[place]
    shares = numpy.array([segment.end - segment.begin for segment in segments])[place]
    begins = numpy.array([segment.begin for segment in segments])[place]
    return begins + numpy.clip((address - base) / sizes, 0, 1) * shares
