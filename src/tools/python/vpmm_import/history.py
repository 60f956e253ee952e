# SPDX-License-Identifier: MIT
"""What a device had before its history begins, found by going back from what it has at the end."""
from bisect import bisect_left, bisect_right
from typing import Dict, List, Tuple

from snapshot import ALLOC, FREE_COMPLETED, FREE_REQUESTED, MAP, UNMAP, Device

END = 1 << 64


class Ranges:
    """Addresses that do not overlap, in ascending order; all of them are below END."""

    def __init__(self):
        self._starts: List[int] = []
        self._ends: List[int] = []

    def remove(self, start: int, end: int) -> None:
        end = min(end, END)
        if start >= end:
            return
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last:
            return
        left = [self._starts[first]] if self._starts[first] < start else []
        right = [self._ends[last - 1]] if self._ends[last - 1] > end else []
        self._starts[first:last] = left + [end] * len(right)
        self._ends[first:last] = [start] * len(left) + right

    def add(self, start: int, end: int) -> None:
        end = min(end, END)
        if start >= end:
            return
        self.remove(start, end)
        place = bisect_left(self._starts, start)
        self._starts.insert(place, start)
        self._ends.insert(place, end)

    def all(self) -> List[Tuple[int, int]]:
        """(address, bytes)"""
        return [(start, end - start) for start, end in zip(self._starts, self._ends)]


def before(device: Device) -> Tuple[List[Tuple[int, int]], Dict[int, Tuple[int, int]]]:
    """What was mapped: (address, bytes); and what was live: address: bytes, stream."""
    ranges, live = Ranges(), dict(device.live)
    for address, n_bytes in sorted(device.mapped):
        ranges.add(address, address + n_bytes)
    for _, address, n_bytes, stream, action in reversed(device.events):
        if action == ALLOC:
            live.pop(address, None)
        elif action in (FREE_REQUESTED, FREE_COMPLETED):
            live[address] = (n_bytes, stream)
        elif action == MAP:
            ranges.remove(address, address + n_bytes)
        elif action == UNMAP:
            ranges.add(address, address + n_bytes)
    return ranges.all(), live
