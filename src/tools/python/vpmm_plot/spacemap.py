# SPDX-License-Identifier: MIT
"""The map of the address space over time as a picture: address against time, coloured by state."""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

import numpy

import look
import space
import traces
from blocks import Blocks
from raster import blended, covered
from view import View
from zombies import zombies_of

FAINTEST = 0.3  # of the colour of a block, however little of a pixel it covers


class SpaceMap(NamedTuple):
    """Of one device, from `first` to `last` (ns)."""
    blocks: Blocks
    mapped: space.Spans
    zombies: space.Spans
    segments: List[space.Segment]
    first: float
    last: float


def space_map(view: View) -> SpaceMap:
    blocks, first, last = view.blocks, view.first, view.last
    mapped, unmapped = space.mapped_of(view.entries)
    zombies = zombies_of(view.entries, blocks, mapped, unmapped, view.memory.held)
    shown = view.shown_blocks()
    seen = [space.Spans(*(array[(spans.start <= last) & (spans.end >= first)] for array in spans))
            for spans in (mapped, zombies)]
    segments = space.segments_of(numpy.concatenate((shown.address, seen[0].address)),
                                 numpy.concatenate((shown.bytes, seen[0].bytes)))
    return SpaceMap(shown, seen[0], seen[1], segments, first, last)


def _painted(shown: SpaceMap, spans, weight: numpy.ndarray, width: int, height: int) -> numpy.ndarray:
    """`spans` are Spans or Blocks: what they share is enough."""
    scale = width / max(shown.last - shown.first, 1.0)
    left, right = ((numpy.clip(array, shown.first, shown.last) - shown.first) * scale
                   for array in (spans.start, spans.end))
    low = space.placed(shown.segments, spans.address) * height
    # The end of a range belongs to the segment of its beginning, also where the next one begins there.
    high = low + (space.placed(shown.segments, numpy.nextafter(spans.address + spans.bytes, 0)) * height - low)
    return covered(left, right, low, numpy.maximum(high, low), weight, width, height)


def _kinds(blocks: Blocks, colour_by: str) -> Dict[str, numpy.ndarray]:
    """Colour -> which blocks have it."""
    if colour_by == "path":
        names = numpy.array([traces.path_name(path) for path in range(256)])[blocks.path]
        return {colour: names == name for name, colour in look.PATHS.items() if (names == name).any()}
    colours = numpy.array([*look.STREAMS, look.OTHERS])
    kinds = colours[numpy.minimum(stream_places(blocks), len(look.STREAMS))]
    return {colour: kinds == colour for colour in colours if (kinds == colour).any()}


def streams_of(blocks: Blocks) -> List[int]:
    """The streams that blocks are of, the one with the most first."""
    streams, counts = numpy.unique(blocks.stream, return_counts=True)
    return [int(stream) for stream in streams[numpy.argsort(-counts, kind="stable")]]


def stream_places(blocks: Blocks) -> numpy.ndarray:
    """Of each block, the place of its stream among streams_of()."""
    _, place, counts = numpy.unique(blocks.stream, return_inverse=True, return_counts=True)
    rank = numpy.empty(counts.size, numpy.int64)
    rank[numpy.argsort(-counts, kind="stable")] = numpy.arange(counts.size)
    return rank[place]


def size_range(shown: SpaceMap) -> Tuple[float, float]:
    """The binary logarithms of the sizes between which most of what the map shows lies."""
    blocks = shown.blocks
    if blocks.bytes.size == 0:
        return 20.0, 22.0
    order = numpy.argsort(blocks.bytes, kind="stable")
    times = numpy.minimum(blocks.end, shown.last) - numpy.maximum(blocks.start, shown.first)
    areas = numpy.cumsum((blocks.bytes * numpy.maximum(times, 1.0))[order])
    low, high = (numpy.log2(blocks.bytes[order][numpy.searchsorted(areas, areas[-1] * share)]) for share in (0.02, 0.98))
    return float(low), float(max(high, low + 2))


def picture(shown: SpaceMap, width: int, height: int, colour_by: str, theme: look.Theme) -> numpy.ndarray:
    """(height, width, 3) of 0 to 1, the lowest address in row 0."""
    canvas = numpy.broadcast_to(numpy.array(look.rgb(theme.panel)), (height, width, 3))
    for spans, colour in ((shown.mapped, theme.free), (shown.zombies, theme.zombie)):
        share = _painted(shown, spans, numpy.ones(spans.start.size), width, height)
        canvas = blended(canvas, numpy.array(look.rgb(colour)), share)
    blocks = shown.blocks
    total = _painted(shown, blocks, numpy.ones(blocks.start.size), width, height)
    some = numpy.maximum(total, 1e-9)
    if colour_by == "size":
        low, high = size_range(shown)
        share = numpy.clip((numpy.log2(numpy.maximum(blocks.bytes, 1)) - low) / (high - low), 0, 1)
        mean = _painted(shown, blocks, share, width, height) / some
        colour = look.between(theme.sizes, numpy.round(mean * 16) / 16)
    else:
        colour = numpy.zeros((height, width, 3))
        for name, which in _kinds(blocks, colour_by).items():
            part = blocks.chosen(which)
            share = _painted(shown, part, numpy.ones(part.start.size), width, height) / some
            colour += (numpy.round(share * 8) / 8)[:, :, None] * numpy.array(look.rgb(name))
        colour = numpy.clip(colour, 0, 1)
    return blended(canvas, colour, numpy.where(total > 0, numpy.maximum(total, FAINTEST), 0))
