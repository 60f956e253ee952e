# SPDX-License-Identifier: MIT
"""Several traces in one panel: what each has live and held over time, and a bar of each one's peaks."""
from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

import numpy

import look
import panels
import series
import units
from series import Memory

COLOURS = [look.STREAMS[place] for place in (0, 5, 2, 1, 3, 4, 7, 6)]
NAME_LETTERS = 26


class Compared(NamedTuple):
    """Times count from `first`, so that traces of different programs begin together."""
    name: str
    memory: Memory
    first: float
    last: float


class Peaks(NamedTuple):
    live: float
    held: Optional[float]


def peaks_of(one: Compared) -> Peaks:
    def highest(steps: series.Steps) -> float:
        return series.peak_of(steps.clipped(one.first, one.last)).bytes
    return Peaks(highest(one.memory.live), highest(one.memory.held) if one.memory.held is not None else None)


def short(name: str, letters: int = NAME_LETTERS) -> str:
    return name if len(name) <= letters else name[:letters - 1] + "…"


def over_time(axes: Any, theme: look.Theme, compared: List[Compared]) -> None:
    panels.plain_axes(axes, theme)
    top = 0.0
    for colour, one in zip(COLOURS, compared):
        is_alone = one.memory.held is None
        for steps, what in ((one.memory.live, "live"), (one.memory.held, "held")):
            if steps is None:
                continue
            shown = steps.clipped(one.first, one.last).thinned(panels.COLUMNS)
            top = max(top, series.peak_of(shown).bytes)
            is_main = what == "held" or is_alone
            if what == "live" and len(compared) < 3:
                axes.fill_between(shown.when - one.first, shown.level, step="post", color=colour, alpha=0.08, linewidth=0,
                                  rasterized=shown.when.size > 2 * panels.COLUMNS)
            line, = axes.plot(shown.when - one.first, shown.level, drawstyle="steps-post", color=colour,
                              linewidth=1.8 if what == "held" else 1.1 if is_main else 0.6, alpha=1.0 if is_main else 0.5)
            line.set_gid(f"{one.name}: {what}")
    panels.byte_axis(axes, theme, top)
    has_held = any(one.memory.held is not None for one in compared)
    panels.heading(axes, theme, "Held (thick) and live (thin)" if has_held else "Live memory")
    panels.time_axis(axes, theme, 0.0, max(one.last - one.first for one in compared))
    axes.set_xlabel(axes.get_xlabel().replace("since the trace began", "since each trace began"))


def _bar_text(peaks: Peaks) -> str:
    if peaks.held is None:
        return units.bytes_text(peaks.live)
    ratio = f" ({peaks.held / peaks.live:.2f}×)" if peaks.live else ""
    return f"{units.bytes_text(peaks.held)} held{ratio}"


def bars(axes: Any, theme: look.Theme, compared: List[Compared]) -> None:
    panels.plain_axes(axes, theme)
    places = numpy.arange(len(compared))[::-1]
    all_peaks = [peaks_of(one) for one in compared]
    most = max(max(peaks.live, peaks.held or 0) for peaks in all_peaks) or 1.0
    for place, colour, one, peaks in zip(places, COLOURS, compared, all_peaks):
        if peaks.held is not None:
            axes.barh(place, peaks.held, 0.5, color=colour, alpha=0.35, linewidth=0, gid=f"{one.name}: held peak")
        axes.barh(place, peaks.live, 0.5, color=colour, linewidth=0, gid=f"{one.name}: live peak")
        axes.text(0, place + 0.33, short(one.name), fontsize=8.5, color=theme.ink, va="bottom", parse_math=False)
        axes.text(most, place + 0.33, _bar_text(peaks), fontsize=8.5, color=theme.soft, va="bottom", ha="right")
    axes.set_ylim(-0.5, len(compared) - 0.5 + 0.25)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    ticks = units.byte_ticks(most, 4)
    axes.set_xticks(ticks)
    axes.set_xticklabels([units.bytes_text(tick) if tick else "0" for tick in ticks])
    axes.set_xlim(0, most * 1.02)
    axes.grid(True, axis="x", color=theme.grid, linewidth=0.7)
    panels.heading(axes, theme, "Peaks: live (full), held (pale)" if any(peaks.held is not None for peaks in all_peaks)
                   else "Live peaks")
