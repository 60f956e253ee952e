# SPDX-License-Identifier: MIT
"""A page that shows traces in a browser: everything is in the one file, and nothing is asked of a network."""
from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy

import compare
import look
import series
import spacemap
import traces
import units
from options import Options
from series import Steps
from view import View

HERE = Path(__file__).resolve().parent
SCRIPTS = ["page_data.js", "page_paint.js", "page_map.js", "page_main.js"]
CURVE_COLUMNS = 8000
FAILED_MOST = 1000
KINDS = {"f8": "<f8", "u2": "<u2", "u1": "u1"}


def _packed(values: numpy.ndarray, kind: str = "f8") -> Dict[str, str]:
    return {"kind": kind, "data": base64.b64encode(numpy.ascontiguousarray(values, KINDS[kind]).tobytes()).decode()}


def _curve(steps: Optional[Steps], view: View) -> Optional[Dict[str, Any]]:
    if steps is None:
        return None
    shown = steps.clipped(view.first, view.last).thinned(CURVE_COLUMNS)
    return {"when": _packed(shown.when), "level": _packed(shown.level)}


def _unless_none(steps: Optional[Steps]) -> Optional[Steps]:
    """Without what is none all the time."""
    return steps if steps is not None and steps.level.any() else None


def _peak(steps: Optional[Steps], view: View) -> Optional[Dict[str, float]]:
    if steps is None:
        return None
    return series.peak_of(steps.clipped(view.first, view.last))._asdict()


def _spans(spans: Any) -> Dict[str, Any]:
    return {name: _packed(getattr(spans, name)) for name in ("start", "end", "address", "bytes")}


def _trace(view: View, blocks_most: int) -> Dict[str, Any]:
    shown = spacemap.space_map(view)
    all_blocks, places = shown.blocks, spacemap.stream_places(shown.blocks)
    # The small ones first, so that they do not hide under what they are part of; and no more than a browser draws at ease.
    order = numpy.argsort(all_blocks.bytes, kind="stable")[-blocks_most:]
    blocks = all_blocks.chosen(order)
    memory = view.memory
    return {
        "name": view.name, "first": view.first, "last": view.last, "dropped": view.trace.dropped,
        "peak": _peak(memory.live, view), "heldPeak": _peak(memory.held, view),
        "live": _curve(memory.live, view), "held": _curve(memory.held, view), "pending": _curve(_unless_none(memory.pending), view),
        "passed": _curve(_unless_none(memory.passed), view),
        "failed": _packed(memory.failed[(memory.failed >= view.first) & (memory.failed <= view.last)][:FAILED_MOST]),
        "blocks": {**_spans(blocks), "stream": _packed(numpy.minimum(places[order], 65535), "u2"),
                   "path": _packed(blocks.path, "u1")},
        "allBlocks": int(all_blocks.start.size), "mapped": _spans(shown.mapped), "zombies": _spans(shown.zombies),
        "streams": [f"{stream:x}" for stream in spacemap.streams_of(all_blocks)[:65536]],
        "segments": [segment._asdict() for segment in shown.segments or [spacemap.space.Segment(0.0, 1.0, 0.0, 1.0)]],
        "sizeRange": spacemap.size_range(shown), "paths": {path: traces.path_name(path) for path in range(256)},
    }


def _json(value: Any) -> str:
    """For within a script element: what others wrote cannot end it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def page(views: List[View], title: str, subtitle: str, chosen: Options) -> bytes:
    """The file."""
    facts = {
        "traces": [_trace(view, chosen.blocks_most) for view in views],
        "themes": {"light": look.LIGHT._asdict(), "dark": look.DARK._asdict()}, "isDark": chosen.is_dark,
        "colourBy": chosen.colour_by, "units": units.BYTE_UNITS, "times": units.TIME_UNITS, "words": look.WORDS,
        "tellMost": look.TELL_MOST, "failedMost": FAILED_MOST,
        "streams": look.STREAMS, "others": look.OTHERS, "paths": look.PATHS, "compared": compare.COLOURS,
    }
    parts = {"title": html.escape(title), "subtitle": html.escape(subtitle), "style": (HERE / "page.css").read_text("utf-8"),
             "script": "\n".join((HERE / name).read_text("utf-8") for name in SCRIPTS), "data": _json(facts)}
    pieces = (HERE / "page.html").read_text("utf-8").split("{")
    out = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}")
        out += [parts[name], rest]
    return "".join(out).encode()
