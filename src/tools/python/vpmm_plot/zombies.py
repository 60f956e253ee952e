# SPDX-License-Identifier: MIT
"""Old addresses of memory that was moved, which wait to be unmapped. A trace tells where memory was moved to, not from
where; but nothing uses those addresses any more, and what is mapped twice is more than what is held."""
from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import numpy

import traces
from blocks import Blocks
from series import Steps
from space import Spans, spans_of

UNMAPS_MOST = 5000  # the largest ones
USES_MOST = 100_000  # the last ones

Range = Tuple[float, float]
Row = Tuple[float, float, float, float]


def _moves(entries: numpy.ndarray, blocks: Blocks) -> numpy.ndarray:
    """When memory left its addresses."""
    stitches = traces.moments(entries[entries["kind"] == traces.STITCH])
    return numpy.sort(numpy.concatenate((stitches, blocks.start[blocks.path == traces.BY_REVIVE])))


def _released(entries: numpy.ndarray) -> Dict[float, List[Range]]:
    """What went back to the device, by the moment: it was unmapped then, and never a zombie."""
    releases = entries[entries["kind"] == traces.RELEASE]
    found: Dict[float, List[Range]] = {}
    for moment, begin, n_bytes in zip(traces.moments(releases).tolist(), releases["address"].tolist(),
                                      releases["bytes"].tolist()):
        found.setdefault(moment, []).append((float(begin), float(begin + n_bytes)))
    return found


def _unmapped(entries: numpy.ndarray, blocks: Blocks, unmapped: Spans, moves: numpy.ndarray) -> List[Row]:
    """What was unmapped, from the first move after its last use on."""
    released = _released(entries)
    by_address = blocks.chosen(numpy.argsort(blocks.address, kind="stable"))
    longest = float(blocks.bytes.max()) if blocks.bytes.size else 0.0
    rows = []
    for place in numpy.argsort(-unmapped.bytes, kind="stable")[:UNMAPS_MOST]:
        born, moment, address, n_bytes = (float(array[place]) for array in unmapped)
        if any(begin <= address < end for begin, end in released.get(moment, [])):
            continue
        low, high = numpy.searchsorted(by_address.address, (address - longest, address + n_bytes))
        ends = by_address.end[low:high]
        uses = (by_address.address[low:high] + by_address.bytes[low:high] > address) & (ends > born) & (ends <= moment)
        move = int(numpy.searchsorted(moves, float(ends[uses].max()) if uses.any() else born, side="right"))
        if move < moves.size and moves[move] < moment:
            rows.append((float(moves[move]), moment, address, n_bytes))
    return rows


def _last_uses(blocks: Blocks, mapped: Spans) -> List[Row]:
    """The parts of what is mapped at the end: when used last (infinite: still in use), mapped since, address, bytes."""
    latest = numpy.argsort(blocks.end, kind="stable")[-USES_MOST:]
    begin, end, until = blocks.address[latest], (blocks.address + blocks.bytes)[latest], blocks.end[latest]
    edges = numpy.unique(numpy.concatenate((begin, end, mapped.address, mapped.address + mapped.bytes)))
    used = numpy.zeros(edges.size)
    for low, high, when in zip(numpy.searchsorted(edges, begin), numpy.searchsorted(edges, end), until):
        used[low:high] = when
    rows = []
    for since, low_edge, n_bytes in zip(mapped.start, mapped.address, mapped.bytes):
        low, high = numpy.searchsorted(edges, (low_edge, low_edge + n_bytes))
        rows += [(float(max(used[cell], since)), float(since), float(edges[cell]), float(edges[cell + 1] - edges[cell]))
                 for cell in range(low, high)]
    return rows


def _waiting(blocks: Blocks, mapped: Spans, moves: numpy.ndarray, held: float) -> List[Row]:
    """What is mapped at the end beyond what is held then: of what no one used since a move, the largest parts."""
    still = Spans(*(array[numpy.isinf(mapped.end)] for array in mapped))
    surplus = float(still.bytes.sum()) - held
    if surplus <= 0 or moves.size == 0:
        return []
    rows = []
    for last, _, address, n_bytes in sorted(_last_uses(blocks, still), key=lambda row: -row[3]):
        move = int(numpy.searchsorted(moves, last, side="right"))
        if move < moves.size and n_bytes <= surplus:
            rows.append((float(moves[move]), numpy.inf, address, n_bytes))
            surplus -= n_bytes
    return rows


def zombies_of(entries: numpy.ndarray, blocks: Blocks, mapped: Spans, unmapped: Spans, held: Optional[Steps]) -> Spans:
    """From when to when (infinite: still). `mapped` and `unmapped` as space.mapped_of() tells them."""
    moves = _moves(entries, blocks)
    rows = _unmapped(entries, blocks, unmapped, moves)
    if held is not None and held.level.size:
        rows += _waiting(blocks, mapped, moves, float(held.level[-1]))
    return spans_of(rows)
