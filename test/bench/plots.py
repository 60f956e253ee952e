# SPDX-License-Identifier: MIT
"""Draws the results as SVG: latency against threads, held/peak against time for each trace, cost against size, passes against
the budget of weights.

The same results give the same bytes: no date, no random names, text as text."""
from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from records import Results
from works import GIB, KIB, MIB, RIVALS

Points = List[Tuple[float, float]]
UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
COLOURS = {"malloc": "#888888", "async0": "#d95f02", "async": "#e6ab02", "page": "#7570b3", "page-malloc": "#7570b3",
           "pool": "#1b9e77", "pool-malloc": "#66a61e", "weights-resident": "#888888", "weights-ring": "#7570b3",
           "weights-accelerate": "#d95f02", "weights-vpmm": "#1b9e77"}
MARKERS = {"malloc": "s", "async0": "v", "async": "^", "page": "D", "page-malloc": "d", "pool": "o", "pool-malloc": "P"}
NS_PER_US, NS_PER_MS = 1e3, 1e6


def _of_part(results: Results, part: str) -> List[str]:
    return [work for work in results.works() if work.startswith(part + "/")]


def thread_series(results: Results) -> Dict[str, Dict[str, Points]]:
    """Work -> rival -> (threads, us a pair)."""
    panels: Dict[str, Dict[str, Points]] = {}
    for work in _of_part(results, "pairs"):
        for rival in results.rivals(work):
            points = []
            for figure in results.figures(work):
                match = re.fullmatch(r"pair_t(\d+)", figure)
                value = results.median(work, rival, figure) if match else None
                if match and value is not None:
                    points.append((float(match.group(1)), value / NS_PER_US))
            if points:
                panels.setdefault(work, {})[rival] = sorted(points)
    return panels


def trace_series(results: Results) -> Dict[str, Dict[str, Points]]:
    """Trace -> rival -> one point: (ms of the cold pass, held/peak)."""
    panels: Dict[str, Dict[str, Points]] = {}
    for work in _of_part(results, "traces"):
        for rival in results.rivals(work):
            time_ns = results.median(work, rival, "cold_total")
            held = results.median(work, rival, "held_ratio")
            if time_ns is not None and held is not None:
                panels.setdefault(work, {})[rival] = [(time_ns / NS_PER_MS, held)]
    return panels


def size_of(work: str) -> float:
    """MiB, from a name that ends in a size; 0 where it does not."""
    match = re.search(r"(\d+) (KiB|MiB|GiB)$", work)
    return int(match.group(1)) * UNITS[match.group(2)] / MIB if match else 0.0


def size_series(results: Results) -> Dict[str, Dict[str, Points]]:
    """Kind of work -> rival -> (MiB, us)."""
    kinds = (("pairs", "pair_t1", "a pair, warm"), ("malloc", "pair_t1", "a pair of cudaMalloc and cudaFree"),
             ("growth", "malloc", "cold growth"))
    panels: Dict[str, Dict[str, Points]] = {}
    for part, figure, title in kinds:
        for work in _of_part(results, part):
            for rival in results.rivals(work):
                value = results.median(work, rival, figure)
                if value is not None and size_of(work) and "walkthrough" not in work:
                    panels.setdefault(title, {}).setdefault(rival, []).append((size_of(work), value / NS_PER_US))
    return {title: {rival: sorted(points) for rival, points in panel.items()} for title, panel in panels.items()}


RESIDENT = "weights-resident"
BOUND = "least time: what the budget leaves to copy"


def _budget_share(results: Results, work: str, rival: str, name: str) -> Optional[float]:
    """The percentage of the weights that a budget's name stands for."""
    budget = results.median(work, rival, f"budget_{name}")
    weights = results.median(work, rival, "weights")
    if budget is not None and weights:
        return 100 * budget / weights
    return float(name) if name.isdigit() else 100.0 if name in ("all", "resident") else None


def weights_series(results: Results) -> Dict[str, Dict[str, Points]]:
    """Model and kind of pass -> rival, and the bound -> (budget in percent of the weights, ms a pass)."""
    panels: Dict[str, Dict[str, Points]] = {}
    for work in _of_part(results, "weights"):
        for rival in results.rivals(work):
            for figure in results.figures(work):
                kind, _, name = figure.partition("_")
                share, value = _budget_share(results, work, rival, name), results.median(work, rival, figure)
                # The process of the weights measures the resident model as well, beside a budget for all.
                if name == "resident" and rival != RESIDENT:
                    continue
                if kind not in ("decode", "prefill", "bound") or share is None or value is None:
                    continue
                if kind != "bound":
                    panel = panels.setdefault(f"{work.partition('/')[2]}, {kind}", {})
                    panel.setdefault(rival, []).append((share, value / NS_PER_MS))
                    continue
                for kind in ("decode", "prefill"):
                    resident = results.median(work, RESIDENT, f"{kind}_resident") or 0.0
                    panel = panels.setdefault(f"{work.partition('/')[2]}, {kind}", {})
                    panel.setdefault(BOUND, []).append((share, max(value, resident) / NS_PER_MS))
    return {title: {rival: sorted(points) for rival, points in panel.items()} for title, panel in panels.items()}


Series = Callable[[Results], Dict[str, Dict[str, Points]]]
# Name -> series, labels of the axes, whether they are logarithmic, columns.
PLOTS: Dict[str, Tuple[Series, str, str, bool, bool, int]] = {
    "threads": (thread_series, "threads", "us a pair", True, True, 3),
    "traces": (trace_series, "ms of host time, cold", "held / peak", True, False, 3),
    "sizes": (size_series, "MiB", "us", True, True, 3),
    "weights": (weights_series, "budget in percent of the weights", "ms a pass", False, True, 2),
}


def names(results: Results) -> List[str]:
    """Of the plots for which there are figures."""
    return [name for name, plot in PLOTS.items() if plot[0](results)]


def draw(results: Results, folder: Path) -> List[Path]:
    """Draws what there are figures for; the files written. Raises ImportError without matplotlib."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "vpmm", "svg.fonttype": "none", "font.size": 10,
                                "font.family": "sans-serif"})
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names(results):
        written.append(folder / f"{name}.svg")
        _draw_one(name, results, written[-1])
    return written


def _draw_one(name: str, results: Results, path: Path) -> None:
    from matplotlib import pyplot
    series, x_label, y_label, x_log, y_log, n_columns = PLOTS[name]
    panels = series(results)
    n_columns = min(n_columns, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure, grid = pyplot.subplots(n_rows, n_columns, squeeze=False, figsize=(4.2 * n_columns, 3.4 * n_rows + 0.8))
    axes = [axis for row in grid for axis in row]
    for axis in axes[len(panels):]:
        axis.set_visible(False)
    shown: Dict[str, object] = {}
    for axis, (title, rivals) in zip(axes, panels.items()):
        for rival, points in rivals.items():
            line, = axis.plot(*zip(*points), marker=MARKERS.get(rival, "x"), color=COLOURS.get(rival, "black"),
                              linestyle="--" if rival == BOUND else "-" if len(points) > 1 else "")
            line.set_gid(f"{title}: {rival}")
            shown[rival] = line
        axis.set(title=title, xlabel=x_label, ylabel=y_label, xscale="log" if x_log else "linear",
                 yscale="log" if y_log else "linear")
        axis.grid(True, color="#dddddd", linewidth=0.6)
        _plain_ticks(axis, name, rivals.values())
    figure.legend(list(shown.values()), [RIVALS[r].text if r in RIVALS else r for r in shown], loc="lower center", ncol=3,
                  fontsize=9)
    figure.tight_layout(rect=(0, 0.9 / (3.4 * n_rows + 0.8), 1, 1))
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    path.write_text("".join(line.rstrip() + "\n" for line in text.getvalue().splitlines()))


def _plain_ticks(axis: object, name: str, series: Sequence[Points]) -> None:
    """Threads and sizes are few: a tick each."""
    if name in ("traces", "weights"):
        return
    values = sorted({x for points in series for x, _ in points})
    axis.set_xticks(values)  # type: ignore[attr-defined]
    axis.set_xticklabels([f"{value:g}" for value in values])  # type: ignore[attr-defined]
    axis.minorticks_off()  # type: ignore[attr-defined]
