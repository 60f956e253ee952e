# SPDX-License-Identifier: MIT
"""What was allocated, from when to when: mallocs and frees of one device brought together by their address."""
from __future__ import annotations

from typing import NamedTuple

import numpy

import traces


class Blocks(NamedTuple):
    """One element of each array a block, in the order in which they were given out. Times in nanoseconds; the end of a
    block that was never freed is infinite."""
    start: numpy.ndarray
    end: numpy.ndarray
    address: numpy.ndarray
    bytes: numpy.ndarray
    stream: numpy.ndarray
    path: numpy.ndarray
    device: numpy.ndarray
    began: numpy.ndarray  # places in the sequence of entries, which tell apart what happened at the same time
    ended: numpy.ndarray

    def chosen(self, which: numpy.ndarray) -> Blocks:
        return Blocks(*(array[which] for array in self))

    def between(self, first: float, last: float) -> Blocks:
        """Those of which a part lies there."""
        return self.chosen((self.start <= last) & (self.end >= first))


def paired(entries: numpy.ndarray) -> Blocks:
    """The blocks of all devices, which have no address in common; a free need not know its device. A block whose free is
    missing ends where its address is given out again."""
    is_malloc = entries["kind"] == traces.MALLOC
    counts = (is_malloc & (entries["bytes"] > 0)) | (entries["kind"] == traces.FREE)
    places = numpy.flatnonzero(counts & (entries["flags"] & traces.IS_FAILED == 0) & (entries["address"] != 0))
    chosen = entries[places]
    when = traces.moments(chosen)
    order = numpy.lexsort((when, chosen["address"]))
    chosen, when, places = chosen[order], when[order], places[order]
    has_next = numpy.append(chosen["address"][1:] == chosen["address"][:-1], False)
    end = numpy.where(has_next, numpy.append(when[1:], 0), numpy.inf)
    ended = numpy.where(has_next, numpy.append(places[1:], 0), entries.size)
    begins = chosen["kind"] == traces.MALLOC
    address, n_bytes = chosen["address"].astype(numpy.float64), chosen["bytes"].astype(numpy.float64)
    blocks = Blocks(when, end, address, n_bytes, chosen["stream"], chosen["path"], chosen["device"], places, ended).chosen(begins)
    return blocks.chosen(numpy.lexsort((blocks.began, blocks.start)))
