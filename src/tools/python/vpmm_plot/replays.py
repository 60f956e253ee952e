# SPDX-License-Identifier: MIT
"""Reads what `vpmm replay --json` printed: memory over time of each way in which a trace was replayed."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Optional

import numpy

import blocks as pairing
import traces
import view
from failures import Wrong
from series import Memory, Steps
from view import View

POINTS_MOST = 10_000_000


def is_json(path: Path) -> bool:
    """False also where the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def _points(path: Path, replay: Any) -> numpy.ndarray:
    """Of each: nanoseconds, bytes live, bytes held."""
    points = replay.get("over_time") if isinstance(replay, dict) else None
    if not isinstance(points, list) or not 0 < len(points) <= POINTS_MOST:
        raise Wrong(f"{path}: a replay in it has no memory over time")
    try:
        table = numpy.array(points, numpy.float64).reshape(-1, 3)
    except (ValueError, TypeError, OverflowError) as error:
        raise Wrong(f"{path}: a point of its memory over time is not three numbers") from error
    limits = (traces.NS_MOST, traces.BYTES_MOST, traces.BYTES_MOST)
    if len(table) != len(points) or not ((table >= 0) & (table <= limits)).all() or (numpy.diff(table[:, 0]) < 0).any():
        raise Wrong(f"{path}: its memory over time is none: times go back, or numbers are out of range")
    return table


def read(path: Path, label: str, begin_ns: Optional[float], end_ns: Optional[float]) -> List[View]:
    """A view for each replay of the file. Raises Wrong."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Wrong(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Wrong(f"{path}: no JSON: {traces.plain(str(error))}") from error
    found = content.get("replays") if isinstance(content, dict) else None
    if not isinstance(found, list) or not found:
        raise Wrong(f"{path}: JSON, but not what vpmm replay --json prints")
    views, nothing = [], numpy.empty(0, traces.ENTRY)
    for replay in found:
        table = _points(path, replay)
        name = label if len(found) == 1 else f"{label}: {traces.plain(str(replay.get('through', '')))[:40]}"
        when = numpy.ascontiguousarray(table[:, 0])
        memory = Memory(Steps(when, table[:, 1]), Steps(when[:0], when[:0]), Steps(when, table[:, 2]), None, when[:0])
        first, last = view.chosen_time(name, float(when[0]), max(float(when[-1]), float(when[0]) + 1), begin_ns, end_ns)
        views.append(View(name, traces.Trace(name, "", nothing, 0, True), 0, 1, nothing, pairing.paired(nothing), memory,
                          first, last))
    return views
