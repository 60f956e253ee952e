# SPDX-License-Identifier: MIT
"""Panels of a figure, drawn with matplotlib into axes that they are given. A panel puts its title, its legend and its
figures above the axes, never over the data."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy

import look
import series
import spacemap
import units
from blocks import Blocks
from series import Memory, Steps

COLUMNS = 420  # of a curve: more would not be seen
Entry = Tuple[str, str]  # of a legend: colour, text


def plain_axes(axes: Any, theme: look.Theme) -> None:
    axes.set_facecolor(theme.panel)
    axes.tick_params(colors=theme.soft, labelsize=8.5, length=3, width=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.soft)
        spine.set_linewidth(0.6)
    axes.set_axisbelow(True)


def heading(axes: Any, theme: look.Theme, title: str, entries: Sequence[Entry] = (), is_stacked: bool = False) -> None:
    """The title above the axes at the left, and what its colours mean at the right; stacked: below the title."""
    from matplotlib.lines import Line2D
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=theme.ink, pad=25 if is_stacked else 8,
                   parse_math=False)
    if not entries:
        return
    handles = [Line2D([], [], color=colour, marker="s", markersize=6.5, linestyle="", markeredgewidth=0)
               for colour, _ in entries]
    place = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0)} if is_stacked else {
        "loc": "lower right", "bbox_to_anchor": (1.0, 1.0)}
    is_long = len(entries) > 6
    legend = axes.legend(handles, [text for _, text in entries], ncol=len(entries), frameon=False,
                         fontsize=7.5 if is_long else 8.5, labelcolor=theme.ink, handletextpad=0.1 if is_long else 0.2,
                         columnspacing=0.7 if is_long else 1.3, borderpad=0.2,
                         borderaxespad=0.3, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)


def byte_axis(axes: Any, theme: look.Theme, top: float, most: int = 6) -> None:
    ticks = units.byte_ticks(max(top, 1.0), most)
    axes.set_yticks(ticks)
    axes.set_yticklabels([units.bytes_text(tick) if tick else "0" for tick in ticks])
    axes.set_ylim(0, max(top, 1.0) * 1.06)
    axes.grid(True, axis="y", color=theme.grid, linewidth=0.7)


def time_axis(axes: Any, theme: look.Theme, first: float, last: float, is_named: bool = True) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator
    name, unit = units.time_unit(last - first)
    axes.set_xlim(first, max(last, first + 1))
    locator = MaxNLocator(nbins=9, steps=[1, 2, 2.5, 5, 10])
    axes.set_xticks([tick * unit for tick in locator.tick_values(first / unit, max(last, first + 1) / unit)
                     if first <= tick * unit <= last])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{round(tick / unit, 9):g}"))
    if is_named:
        axes.set_xlabel(f"time since the trace began, {name}", fontsize=8.5, color=theme.soft)


def _stairs(axes: Any, steps: Steps, gid: str, **look_of: Any) -> None:
    line, = axes.plot(steps.when, steps.level, drawstyle="steps-post", solid_joinstyle="miter", **look_of)
    line.set_gid(gid)


def _shown(steps: Optional[Steps], first: float, last: float) -> Optional[Steps]:
    return steps.clipped(first, last).thinned(COLUMNS) if steps is not None else None


def _filled(axes: Any, steps: Steps, colour: str, strength: float) -> None:
    """Dense curves are many corners: what is below them is kept as pixels."""
    axes.fill_between(steps.when, steps.level, step="post", color=colour, alpha=strength, linewidth=0,
                      rasterized=steps.when.size > 2 * COLUMNS)


def memory(axes: Any, theme: look.Theme, shown: Memory, first: float, last: float, title: str, is_named: bool) -> None:
    live, held, pending, passed = (_shown(steps, first, last)
                                   for steps in (shown.live, shown.held, shown.pending, shown.passed))
    assert live is not None
    plain_axes(axes, theme)
    peak, entries = series.peak_of(live), []
    top = peak.bytes
    if held is not None:
        held_peak = series.peak_of(held)
        top = max(top, held_peak.bytes)
        _filled(axes, held, theme.held, 0.13)
        _stairs(axes, held, "held", color=theme.held, linewidth=1.1)
        entries.append((theme.held, look.legend_text("held", units.bytes_text(held_peak.bytes))))
    _filled(axes, live, theme.live, 0.28)
    _stairs(axes, live, "live", color=theme.live, linewidth=1.2)
    entries.append((theme.live, look.legend_text("live", units.bytes_text(peak.bytes))))
    if passed is not None and series.peak_of(passed).bytes > 0.01 * peak.bytes:
        _stairs(axes, passed, "passed", color=theme.passed, linewidth=1.0)
        entries.append((theme.passed, look.WORDS["passed"]))
    if pending is not None and pending.level.any():
        _stairs(axes, pending, "pending", color=theme.pending, linewidth=1.2)
        entries.append((theme.pending, look.WORDS["pending"]))
    failed = shown.failed[(shown.failed >= first) & (shown.failed <= last)]
    byte_axis(axes, theme, top)
    if failed.size:
        axes.plot(failed[:2000], numpy.full(min(failed.size, 2000), top * 1.03), linestyle="", marker="v", markersize=5,
                  color=theme.failed, markeredgewidth=0, gid="failed")
        entries.append((theme.failed, f"{units.count_text(failed.size)} {look.WORDS['failed']}"))
    if peak.bytes:
        axes.plot([peak.when], [peak.bytes], marker="o", markersize=4.5, color=theme.live, markeredgecolor=theme.panel,
                  markeredgewidth=0.4, gid="peak", clip_on=False)
    heading(axes, theme, title, entries)
    time_axis(axes, theme, first, last, is_named)


def _address_axis(axes: Any, theme: look.Theme, segments: List, height_px: float) -> None:
    ticks, labels = [], []
    for segment in segments:
        room = (segment.end - segment.begin) * height_px
        if not ticks or (segment.begin - ticks[-1]) * height_px > 13:
            ticks.append(segment.begin)
            labels.append(f"{int(segment.address):#x}")
        for tick in units.byte_ticks(segment.bytes, max(1, int(room / 30)))[1:]:
            place = segment.begin + tick / segment.bytes * (segment.end - segment.begin)
            if (place - ticks[-1]) * height_px > 13:
                ticks.append(place)
                labels.append(f"+{units.bytes_text(tick)}")
    axes.set_yticks(ticks)
    axes.set_yticklabels(labels)
    for below, above in zip(segments, segments[1:]):
        axes.axhline((below.end + above.begin) / 2, color=theme.soft, linewidth=0.6, linestyle=(0, (2, 3)))


def _map_entries(shown: spacemap.SpaceMap, theme: look.Theme, colour_by: str) -> List[Entry]:
    entries: List[Entry] = []
    if colour_by == "size":
        low, high = spacemap.size_range(shown)
        shares = numpy.linspace(0, 1, len(theme.sizes))
        texts = [units.bytes_text(2 ** round(low + share * (high - low))) for share in shares]
        texts[0], texts[-1] = f"live: {texts[0]} or less", f"{texts[-1]} or more"
        entries += [entry for place, entry in enumerate(zip(theme.sizes, texts)) if place % 2 == 0]
    elif colour_by == "path":
        names = {spacemap.traces.path_name(int(path)) for path in numpy.unique(shown.blocks.path)}
        entries += [(colour, name) for name, colour in look.PATHS.items() if name in names]
    else:
        streams = spacemap.streams_of(shown.blocks)
        entries += [(colour, f"stream {stream:x}") for colour, stream in zip(look.STREAMS, streams)]
        if len(streams) > len(look.STREAMS):
            entries.append((look.OTHERS, f"{len(streams) - len(look.STREAMS)} others"))
    if shown.mapped.start.size:
        entries.append((theme.free, "held, free"))
    if shown.zombies.start.size:
        entries.append((theme.zombie, "zombie"))
    return entries


def address_map(axes: Any, theme: look.Theme, shown: spacemap.SpaceMap, colour_by: str, size_px: Tuple[int, int],
                title: str) -> None:
    plain_axes(axes, theme)
    pixels = spacemap.picture(shown, *size_px, colour_by, theme)
    image = axes.imshow((pixels * 255).round().astype(numpy.uint8), origin="lower", aspect="auto",
                        interpolation="nearest", extent=(shown.first, max(shown.last, shown.first + 1), 0, 1))
    image.set_gid("address map")
    axes.set_ylim(0, 1)
    time_axis(axes, theme, shown.first, shown.last)
    height_px = axes.get_window_extent().height * 72 / axes.figure.dpi
    _address_axis(axes, theme, shown.segments, height_px)
    heading(axes, theme, title, _map_entries(shown, theme, colour_by))


def size_classes(n_bytes: numpy.ndarray) -> numpy.ndarray:
    """The class of each size: n holds those from 2**n to less than 2**(n + 1)."""
    return numpy.frexp(numpy.maximum(n_bytes, 1))[1] - 1


def _class_axis(axes: Any, low: int, high: int) -> None:
    every = max(1, -(-(high - low + 1) // 9))
    ticks = list(range(low, high + 1, every))
    axes.set_xticks(ticks)
    axes.set_xticklabels([units.bytes_text(2.0 ** tick) for tick in ticks])
    axes.set_xlim(low - 0.6, high + 0.6)


def sizes(requests: Any, at_peak: Any, theme: look.Theme, blocks: Blocks, live: Steps, first: float, last: float,
          title: str) -> None:
    """Left: how many requests of each size there were, by who served them. Right: what the live peak was made of."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator
    began = blocks.chosen((blocks.start >= first) & (blocks.start <= last))
    if began.start.size == 0:
        began = blocks
    peak = series.peak_of(live.clipped(first, last))
    alive = blocks.chosen((blocks.start <= peak.when) & (blocks.end > peak.when))
    classes, at_class = size_classes(began.bytes), size_classes(alive.bytes)
    low, high = int(classes.min()), int(classes.max())
    names = numpy.array([spacemap.traces.path_name(path) for path in range(256)])[began.path]
    bottom, entries = numpy.zeros(high - low + 1), []
    plain_axes(requests, theme)
    for name, colour in look.PATHS.items():
        counts = numpy.bincount(classes[names == name] - low, minlength=high - low + 1)
        if counts.any():
            requests.bar(numpy.arange(low, high + 1), counts, 0.8, bottom=bottom, color=colour, linewidth=0,
                         gid=f"requests: {name}")
            bottom = bottom + counts
            entries.append((colour, name))
    requests.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    requests.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: units.count_text(tick)))
    requests.grid(True, axis="y", color=theme.grid, linewidth=0.7)
    heading(requests, theme, f"{title}{units.count_text(began.start.size)} requests by size",
            entries if len(entries) > 1 or entries[0][1] != "not known" else (), is_stacked=True)
    plain_axes(at_peak, theme)
    inside = (at_class >= low) & (at_class <= high)
    held = numpy.bincount(at_class[inside] - low, alive.bytes[inside], minlength=high - low + 1)
    at_peak.bar(numpy.arange(low, high + 1), held, 0.8, color=theme.live, linewidth=0, gid="bytes at the peak")
    byte_axis(at_peak, theme, float(held.max()), 4)
    heading(at_peak, theme, f"{units.bytes_text(peak.bytes)} live at the peak, by size", is_stacked=True)
    for axes in (requests, at_peak):
        _class_axis(axes, low, high)
