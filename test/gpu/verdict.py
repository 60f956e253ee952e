# SPDX-License-Identifier: MIT
"""Judges a program from its three runs and its counters, and writes the tables."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence

import conformance
import memcheck
from catalogue import AGAIN, ALWAYS_PASSED, BARE, DRIVER, PRELOADED, Program
from counters import Counters
from process import Figures, Outcome, difference


@dataclass
class Result:
    """A row: either why the program was left out, or its runs and what is wrong with them."""

    program: Program
    left_out: str = ""
    outcomes: Dict[str, Outcome] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    differences: List[str] = field(default_factory=list)  # of the runs
    breaches: List[str] = field(default_factory=list)  # of counters and bars
    unexplained: str = ""  # what the table of differences would need

    @property
    def good(self) -> bool:
        return not self.differences and not self.breaches

    def figure(self, run: str, name: str) -> Optional[float]:
        """What the run measured; of the preloaded one also what the library counted."""
        counted = self.counters.figures if run == PRELOADED else {}
        return self.outcomes[run].figures.get(name, counted.get(name)) if run in self.outcomes else None


def judge(result: Result) -> None:
    """Fills in `differences` and `breaches`."""
    runs = result.outcomes
    for run, outcome in runs.items():
        result.differences += _ending(run, outcome, result.program.may_fail)
    for run in (AGAIN, PRELOADED):
        if run in runs and not runs[BARE].hung and not runs[run].hung:
            result.differences += _unlike(run, runs[BARE], runs[run], bool(result.program.differs_as))
    if result.program.differs_as and not any(outcome.hung or outcome.trouble for outcome in runs.values()):
        _against_table(result)
    if result.program.sanitizer:
        result.differences += memcheck.differences(runs, result.program.reports)
    result.breaches += _counter_breaches(result.program, result.counters)
    for bar in result.program.bars:
        value = result.figure(PRELOADED, bar.figure)
        if not bar.met(value):
            result.breaches.append(f"{bar.figure} is {number(value)}, not {bar.text}")


def _ending(run: str, outcome: Outcome, may_fail: bool) -> List[str]:
    if outcome.trouble:
        return [f"{run}: {outcome.trouble}"]
    if outcome.hung:
        return [f"{run}: HANGS (ended after {outcome.seconds:.0f} s)"]
    if outcome.code != 0 and not may_fail:
        return [f"{run}: ends with {outcome.code}"]
    return []


def _against_table(result: Result) -> None:
    """What differs has to be listed, and what is listed has to differ."""
    outputs = {name: result.outcomes[run].output for name, run in
               (("bare", BARE), ("again", AGAIN), ("preloaded", PRELOADED))}
    found = conformance.compare(result.program.differs_as, outputs, conformance.load_table(), conformance.GPU)
    result.differences += found.complaints()
    result.unexplained = conformance.as_entries(result.program.differs_as, found) if found.unexplained else ""
    result.outcomes[PRELOADED].figures["explained_lines"] = float(found.explained)


def _unlike(run: str, bare: Outcome, other: Outcome, has_table: bool) -> List[str]:
    found = []
    if bare.code != other.code:
        found.append(f"{run}: ends with {other.code}, bare with {bare.code}")
    text = "" if has_table else difference(bare.output, other.output)
    if text:
        found.append(f"{run}: differs from bare: {text}")
    return found


def _counter_breaches(program: Program, counters: Counters) -> List[str]:
    found = list(counters.complaints)
    # A program that ends by _Exit leaves none, nor does one of the driver API that never needs the library.
    if not counters.found and not program.may_fail and program.cudart != DRIVER:
        found.append("the library left no statistics")
    elif program.serves and counters.served == 0:
        found.append("no request was served by the pool")
    for reason, count in counters.passed.items():
        if program.passes is not None and reason not in ALWAYS_PASSED | program.passes:
            found.append(f"{count} requests passed through: {reason.replace('_', ' ')}")
    return found


# ---- tables ----

HEADS = ["program", "served by the pool", "passed through, and why", "same result", "seconds bare, preloaded"]
FIGURE_HEADS = ["program", "figure", "bare", "preloaded", "bar", "met"]


def number(value: Optional[float]) -> str:
    """Short, without digits that mean nothing."""
    if value is None:
        return "none"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def rows(results: Sequence[Result]) -> List[List[str]]:
    return [_row(result) for result in results]


def _row(result: Result) -> List[str]:
    name = result.program.full_name
    if result.left_out:
        return [name, "", "", result.left_out, ""]
    same = "NO" if result.differences else "yes"
    if result.breaches:
        same += ", but see below"
    seconds = ", ".join(f"{result.outcomes[run].seconds:.1f}" for run in (BARE, PRELOADED))
    return [name, str(result.counters.served), result.counters.passed_text() or "none", same, seconds]


def figure_rows(results: Sequence[Result]) -> List[List[str]]:
    return [
        [result.program.full_name, bar.figure, number(result.figure(BARE, bar.figure)),
         number(result.figure(PRELOADED, bar.figure)), bar.text,
         "yes" if bar.met(result.figure(PRELOADED, bar.figure)) else "NO"]
        for result in results if not result.left_out
        for bar in result.program.bars
    ]


def other_figures(result: Result) -> Figures:
    """What the preloaded run measured beyond its bars; with bars, what the library counted, too."""
    barred = {bar.figure for bar in result.program.bars}
    counted = result.counters.figures if barred else {}
    measured = {k: v for k, v in result.outcomes[PRELOADED].figures.items() if k not in barred}
    return {**measured, **{k: v for k, v in counted.items() if v}}


def as_text(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """For a terminal."""
    widths = [max(len(row[i]) for row in [heads, *body]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *body]]
    return "\n".join(lines) + "\n"


def as_markdown(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heads), line(["---"] * len(heads)), *map(line, body)]) + "\n"


def counts(results: Sequence[Result]) -> str:
    """How many rows there are of each kind."""
    left_out = sum(bool(result.left_out) for result in results)
    wrong = sum(not result.good for result in results)
    return f"{len(results) - left_out - wrong} passed, {wrong} failed, {left_out} not run"


def problems(results: Sequence[Result]) -> List[str]:
    """One line for everything that is wrong."""
    return [f"{result.program.full_name}: {text}" for result in results
            for text in [*result.differences, *result.breaches]]


def page(results: Sequence[Result], machine: str, command: str) -> str:
    """The whole page that is kept of a run, in Markdown."""
    text = [
        "# On a real GPU\n",
        f"The last run of `{command}`: {machine}. Written by that command; do not edit.\n",
        "Every program ran bare twice (once in fidelity and memcheck) and once with the library preloaded. \"Same "
        "result\" means that all of them printed the same bytes and ended with the same code; measurements are not "
        "compared. What passed through to CUDA is counted by its reason. What was not run did not pass.\n",
        as_markdown(HEADS, rows(results)),
    ]
    figures = figure_rows(results)
    if figures:
        text += ["## Figures\n", as_markdown(FIGURE_HEADS, figures)]
    wrong = problems(results)
    if wrong:
        text += ["## What is wrong\n", "\n".join(f"- {line}" for line in wrong) + "\n"]
    return "\n".join(text)
