# SPDX-License-Identifier: MIT
"""Lays out the panels of one picture and writes it as SVG or PNG. The same traces and arguments give the same bytes."""
from __future__ import annotations

import io
import logging
from typing import Any, List, NamedTuple, Optional, Tuple

import compare
import look
import panels
import shrink
import spacemap
from failures import Failure
from view import View

LEFT_IN, RIGHT_IN, TOP_IN, FOOT_IN, TICKS_IN = 1.4, 0.3, 0.62, 0.5, 0.3
HEADS_IN = {"memory": 0.36, "map": 0.36, "sizes": 0.58, "compare": 0.36}
SPLIT_IN = 0.75  # between two panels side by side
HEIGHTS_IN = {"memory": 1.9, "map": 2.7, "sizes": 1.7, "compare": 2.2}
FINE_BLOCKS_MOST = 100_000  # in a map with two pixels for one; with more, nobody would see them apart


class Request(NamedTuple):
    """Of one picture. `width_px` and `height_px` of it; `height_px` None: what its panels need."""
    kinds: List[str]
    colour_by: str
    title: str
    subtitle: str
    is_dark: bool
    width_px: int
    height_px: Optional[int]
    dpi: int
    is_vector: bool


class Row(NamedTuple):
    kind: str
    view: Optional[View]  # None: all of them


def _rows(kinds: List[str], views: List[View]) -> List[Row]:
    """Several traces are compared, then shown one below the other."""
    rows = [Row("compare", None)] if "compare" in kinds else []
    for view in views:
        for kind in kinds:
            if kind == "memory" or (kind in ("map", "sizes") and view.shown_blocks().start.size):
                rows.append(Row(kind, view))
    return rows


def _shares_time(rows: List[Row], place: int) -> bool:
    """Whether the next row's axis tells the time of this one too."""
    pair = rows[place:place + 2]
    return [row.kind for row in pair] == ["memory", "map"] and pair[0].view is pair[1].view


def _boxes(rows: List[Row], request: Request) -> Tuple[Tuple[float, float], List[Tuple[float, float]]]:
    """The size of the figure, and of each row where its axes begin from below and how high they are; in inches."""
    feet = [TICKS_IN if row.kind == "sizes" or _shares_time(rows, place) else FOOT_IN for place, row in enumerate(rows)]
    around = TOP_IN + sum(HEADS_IN[row.kind] for row in rows) + sum(feet)
    wanted = sum(HEIGHTS_IN[row.kind] for row in rows)
    height = request.height_px / request.dpi if request.height_px else wanted + around
    scale = (height - around) / wanted
    if scale < 0.15 or request.width_px / request.dpi < 4:
        raise Failure(f"{request.width_px} by {round(height * request.dpi)} pixels are too few for {len(rows)} panels "
                      f"at {request.dpi} dpi")
    top, boxes = height - TOP_IN, []
    for row, foot in zip(rows, feet):
        top -= HEADS_IN[row.kind] + HEIGHTS_IN[row.kind] * scale
        boxes.append((top, HEIGHTS_IN[row.kind] * scale))
        top -= foot
    return (request.width_px / request.dpi, height), boxes


def _axes(figure: Any, size: Tuple[float, float], left: float, right: float, box: Tuple[float, float]) -> Any:
    return figure.add_axes((left / size[0], box[0] / size[1], (right - left) / size[0], box[1] / size[1]))


def _draw_row(figure: Any, size: Tuple[float, float], box: Tuple[float, float], row: Row, request: Request,
              views: List[View], theme: look.Theme, is_timed: bool) -> None:
    left, right = LEFT_IN, size[0] - RIGHT_IN
    middle = left + (right - left) * (0.6 if row.kind == "compare" else 0.5)
    if row.kind in ("compare", "sizes"):
        pair = (_axes(figure, size, left, middle - SPLIT_IN / 2, box),
                _axes(figure, size, middle + SPLIT_IN / 2, right, box))
    else:
        pair = (_axes(figure, size, left, right, box),)
    view = row.view
    if view is None:
        compared = [compare.Compared(one.name, one.memory, one.first, one.last) for one in views]
        compare.over_time(pair[0], theme, compared)
        compare.bars(pair[1], theme, compared)
        return
    whose = f"{compare.short(view.name)}: " if len(views) > 1 else ""
    if row.kind == "memory":
        panels.memory(pair[0], theme, view.memory, view.first, view.last, whose + ("memory" if whose else "Memory"),
                      is_timed)
    elif row.kind == "sizes":
        panels.sizes(pair[0], pair[1], theme, view.blocks, view.memory.live, view.first, view.last, whose)
    else:
        is_fine = request.is_vector and view.blocks.start.size <= FINE_BLOCKS_MOST
        scale = request.dpi * (2 if is_fine else 1)
        size_px = (max(1, round((right - left) * scale)), max(1, round(box[1] * scale)))
        shown = spacemap.space_map(view)
        panels.address_map(pair[0], theme, shown, request.colour_by, size_px,
                           whose + ("addresses" if whose else "Address space"))


def _figure(rows: List[Row], request: Request, views: List[View], theme: look.Theme) -> Any:
    from matplotlib.figure import Figure
    size, boxes = _boxes(rows, request)
    figure = Figure(figsize=size, dpi=request.dpi, facecolor=theme.ground)
    for place, row in enumerate(rows):
        _draw_row(figure, size, boxes[place], row, request, views, theme, not _shares_time(rows, place))
    figure.text(0.16 / size[0], 1 - 0.2 / size[1], request.title, fontsize=13, fontweight="bold", color=theme.ink,
                va="center", parse_math=False)
    figure.text(0.16 / size[0], 1 - 0.42 / size[1], request.subtitle, fontsize=9, color=theme.soft, va="center",
                parse_math=False)
    return figure


def draw(request: Request, views: List[View]) -> bytes:
    """The picture's file. Raises Failure, without matplotlib too."""
    # It warns of its cache, at its import, and of fonts of other systems, which are named for whoever looks at the SVG.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise Failure(f"needs matplotlib ({error}): apt-get install python3-matplotlib, or pip install matplotlib; "
                      "a page (-o FILE.html) does not") from error
    rows = _rows(request.kinds, views)
    if not rows:
        raise Failure("nothing is in the trace that could be drawn so")
    theme, out = look.theme(request.is_dark), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "vpmm", "svg.fonttype": "none", "font.family": look.FONTS,
                                "path.simplify": False, "axes.unicode_minus": False}):
        figure = _figure(rows, request, views, theme)
        if request.is_vector:
            # What is kept as pixels has two for each of the figure's, for whoever looks closer.
            figure.savefig(out, format="svg", dpi=2 * request.dpi, facecolor=theme.ground,
                           metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(out, format="png", facecolor=theme.ground, metadata={"Software": None})
    return shrink.svg(out.getvalue().decode()).encode() if request.is_vector else out.getvalue()
