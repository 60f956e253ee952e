# SPDX-License-Identifier: MIT
"""The tables: of the bars and of everything measured, for a terminal and for docs/BENCHMARKS.md."""
from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence

import made  # noqa: F401  (where the GPU suites' modules are)
from records import Results, Session
from ten import HALVES
from verdict import as_markdown, as_text
from work import Bar, Work
from works import works

HERE = Path(__file__).resolve().parent
HEAD = HERE / "BENCHMARKS.head.md"
BAR_HEADS = ["work", "figure", "baseline", "with VPMM", "ratio", "bar", "met", "held"]
NOT_MEASURED = ""
# Headings of the bars, and the parts that stand under each; under the first, all that stand under no other.
BARS_OF = {"The bars": (), "The bars of traces that were tuned on": HALVES["tuned"],
           "The bars of traces that nobody tuned on": HALVES["untouched"]}


def quantity(value: Optional[float], unit: str) -> str:
    """Short, in a unit that fits."""
    if value is None:
        return NOT_MEASURED
    for name, steps in (("ns", ((1e9, "s"), (1e6, "ms"), (1e3, "us"))),
                        ("bytes", ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")))):
        for size, text in steps if unit == name else ():
            if abs(value) >= size:
                return f"{significant(value / size)} {text}"
    return f"{significant(value)} {unit}".rstrip()


def significant(value: float) -> str:
    """Four digits, never an exponent; whole numbers as they are."""
    if value == int(value):
        return f"{value:.0f}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}"


def ratio_text(value: Optional[float], base: Optional[float]) -> str:
    if value is None or not base:
        return NOT_MEASURED
    return f"{value / base:.3f}" if value * 10 >= base else f"1/{base / value:.1f}"


def is_met(bar: Bar, work: Work, results: Results) -> Optional[bool]:
    """None where a figure is missing."""
    value = results.median(work.full_name, bar.rival, bar.figure)
    limit = bar.limit(lambda rival, figure: results.median(work.full_name, rival, figure))
    return None if value is None or limit is None else value <= limit


def bar_row(work: Work, bar: Bar, results: Results) -> List[str]:
    name = work.full_name
    unit = results.unit(name, bar.figure)
    value = results.median(name, bar.rival, bar.figure)
    baseline = next((limit.rival for limit in bar.limits if limit.rival and not limit.figure), "")
    base = results.median(name, baseline, bar.figure) if baseline else None
    met = is_met(bar, work, results)
    met_text = {True: "yes", False: "NO", None: "failed" if results.failures(name) else "not measured"}[met]
    base_text = f"{quantity(base, unit)} ({baseline})" if base is not None else baseline
    held = quantity(results.median(name, bar.rival, "held_peak"), "bytes")
    return [name, f"{bar.figure}, {bar.rival}", base_text, quantity(value, unit), ratio_text(value, base), bar.text,
            met_text, held]


def bar_rows(results: Results, selected: Sequence[Work]) -> List[List[str]]:
    return [bar_row(work, bar, results) for work in selected for bar in work.bars]


def work_table(work: str, results: Results) -> List[List[str]]:
    """A head and a row for each rival: medians of all figures."""
    figures = results.figures(work)
    body = [[rival, str(results.runs(work, rival)),
             *(quantity(results.median(work, rival, figure), results.unit(work, figure)) for figure in figures)]
            for rival in results.rivals(work)]
    return [["rival", "runs", *figures], *body]


def transposed(table: Sequence[Sequence[str]]) -> List[List[str]]:
    return [list(column) for column in zip(*table)]


def text(results: Results, selected: Sequence[Work]) -> str:
    """For a terminal: what was measured, the bars, what failed."""
    done = [work for work in selected if work.full_name in results.works()]
    lines = []
    for work in done:
        table = transposed(work_table(work.full_name, results))
        lines.append(f"{work.full_name}\n{as_text(table[0], table[1:])}")
    lines.append(as_text(BAR_HEADS, bar_rows(results, done)))
    verdicts = [is_met(bar, work, results) for work in done for bar in work.bars]
    lines += [f"FAILED: {line}" for line in results.failures()]
    lines.append(f"{verdicts.count(True)} bars met, {verdicts.count(False)} not met, {verdicts.count(None)} without figures")
    return "\n".join(lines)


def markdown(sessions: Sequence[Session], results: Results, plots: Sequence[str]) -> str:
    """The whole page; `plots` are the names of the pictures beside it."""
    parts = [HEAD.read_text(), "## What was measured\n"]
    parts.append("\n".join(map(session_text, sessions)) + "\n" if sessions else
                 "Nothing yet: the figures below are empty until a run on a GPU is kept.\n")
    elsewhere = [part for parts_of in BARS_OF.values() for part in parts_of]
    for heading, parts_of in BARS_OF.items():
        under = [work for work in works() if (work.part in parts_of if parts_of else work.part not in elsewhere)]
        parts += [f"## {heading}\n", as_markdown(BAR_HEADS, bar_rows(results, under))]
    if plots:
        parts += ["## Plots\n", "\n\n".join(f"![{name}](bench/{name}.svg)" for name in plots) + "\n"]
    measured = results.works()
    if measured:
        parts += ["## All figures\n", "Medians.\n"]
    for name in measured:
        table = transposed(work_table(name, results))
        parts += [f"### {name}\n", as_markdown(table[0], table[1:])]
    failures = results.failures()
    if failures:
        parts += ["## What failed\n", "\n".join(f"- {line}" for line in failures) + "\n"]
    return "\n".join(parts)


def session_text(session: Session) -> str:
    return (f"- `{session.command}`: {session.gpu}, driver {session.driver}, kernel {session.kernel}, commit "
            f"{session.commit}, {session.date}")
