# SPDX-License-Identifier: MIT
"""Runs works for their rivals in turn, and keeps what each run printed and held. Nothing that one program does ends the
session: a run that fails is a record that says so."""
from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import made
import records
from counters import read_counters
from held import Held, Unwatched, Watch
from process import Outcome, run
from records import GOOD, Record, Results, Session
from works import RIVALS, Rival, Work

CONTEXT_WORK, CONTEXT_RIVAL = "context/context", "bare"
CONTEXT_LIMIT_S = 40.0
# What failed so often for a rival fails again; what was ended at its limit is not tried twice in one session.
FAILURES_MOST = 2
HELD = "held_peak"
# Marks of other names have figures of their own: what is held just then.
MARK_OF_PEAK = "held"
Figures = Dict[str, Tuple[float, str]]


def printed(output: str) -> Figures:
    """The figures of a program: lines "name,value,unit"."""
    found: Figures = {}
    for line in output.splitlines():
        words = line.split(",")
        if len(words) != 3 or line.startswith(("#", "@")):
            continue
        try:
            found[words[0]] = (float(words[1]), words[2])
        except ValueError:
            continue
    return found


def with_ratios(figures: Figures) -> Figures:
    """Adds what follows from other figures of the same run."""
    more = dict(figures)
    peak = figures.get("live_peak", (0.0, ""))[0]
    for name, source in (("held_ratio", HELD), ("rounding", "live_peak_rounded")):
        if peak > 0 and source in figures:
            more[name] = (figures[source][0] / peak, "")
    return more


def environment(rival: Rival, library: Path, folder: Path) -> Dict[str, str]:
    """Nothing of the caller's own preloads and options reaches a program."""
    env = {key: value for key, value in os.environ.items()
           if key != "LD_PRELOAD" and not key.startswith(("VPMM_", "PYTORCH_"))}
    env.update(rival.env)
    if rival.preloaded:
        env["LD_PRELOAD"] = str(library)
        env["VPMM_STATS"] = f"{folder}/stats.%p.json"
    return env


def command(work: Work, rival: Rival) -> List[str]:
    if work.needs:
        way = [rival.api] if work.says_way else []
        return [sys.executable, "-B", str(made.source_of(work)), *way, *work.arguments]
    trace = [str(made.trace_of(work))] if work.trace else []
    return [str(made.binary(work.source)), rival.api, *trace, *work.arguments]


def folder_of(work: Work, rival: Rival) -> Path:
    """Where a run keeps its outputs."""
    return made.FOLDER / "runs" / "".join(c if c.isalnum() else "-" for c in f"{work.full_name}-{rival.name}")


def ending(outcome: Outcome) -> str:
    """How a run ended, in a few words."""
    if outcome.trouble:
        return outcome.trouble
    if outcome.hung:
        return f"ended at its limit after {outcome.seconds:.0f} s"
    if outcome.code != 0:
        said = [*outcome.output.splitlines(), *outcome.errors.splitlines()][-1:]
        return " ".join([f"ends with {outcome.code}:", *said])
    return GOOD


class Runner:
    """Runs programs on the one device. `say` gets a line for each run."""

    def __init__(self, library: Path, results: Path, session: Session, say: Callable[[str], None]) -> None:
        self._library, self._path, self._session, self._say = library, results, session, say
        self.results = Results(records.read([results])[1] if results.exists() else [])
        self._watch: Optional[Watch] = None
        self._context_bytes: Optional[int] = None
        self._failures: Dict[Tuple[str, str], int] = {}  # by work and rival, since it was made

    def all(self, selected: Sequence[Work], n_runs: int, part_limit_s: float, limit_s: float) -> None:
        """Part by part, each within its time, all within `limit_s`; in a part every rival of every work once, then all of
        them again. What the file already has is not run again."""
        end = time.monotonic() + limit_s
        try:
            self._measure_context()
            for part in dict.fromkeys(work.part for work in selected):
                deadline = min(end, time.monotonic() + part_limit_s)
                self._part([work for work in selected if work.part == part], n_runs, deadline)
        finally:
            if self._watch:
                self._watch.close()

    def _part(self, selected: Sequence[Work], n_runs: int, deadline: float) -> None:
        start = time.monotonic()
        for number in range(1, n_runs + 1):
            for work in selected:
                for name in work.rivals if number <= work.runs_most else ():
                    if self._is_wanted(work, name, number):
                        left_s = deadline - time.monotonic()
                        if left_s <= 0:
                            self._say(f"{work.part}: the time is over in run {number}")
                            return
                        self._one(work, RIVALS[name], number, left_s)
        self._say(f"{selected[0].part}: {time.monotonic() - start:.0f} s")

    def _is_wanted(self, work: Work, rival: str, number: int) -> bool:
        return not self.results.is_done(work.full_name, rival, number) and \
            self._failures.get((work.full_name, rival), 0) < FAILURES_MOST

    def _one(self, work: Work, rival: Rival, number: int, left_s: float) -> None:
        folder = folder_of(work, rival)
        clear(folder)
        if work.needs and importlib.util.find_spec(work.needs) is None:
            outcome = Outcome(trouble=f"{work.needs} is not installed")
            self._keep(work.full_name, rival.name, number, outcome, {})
            return
        held = self._begin()
        outcome = run(command(work, rival), environment(rival, self._library, folder), min(work.limit_s, left_s), folder,
                      lambda mark, *_: self._look(held, mark))
        if outcome.hung and left_s < work.limit_s:
            self._say(f"  {work.full_name}, {rival.name}, run {number}: no time was left for it")
            return
        figures = printed(outcome.output)
        if ending(outcome) == GOOD and not figures:
            outcome.trouble = "printed no figures"
        figures["seconds"] = (outcome.seconds, "s")
        figures.update((name, (value, "bytes")) for name, value in outcome.figures.items() if name.startswith("held_"))
        figures.update(self._held_figures(held))
        if rival.preloaded:
            figures.update(self._served(work, folder, outcome))
        self._keep(work.full_name, rival.name, number, outcome, with_ratios(figures))

    @staticmethod
    def _served(work: Work, folder: Path, outcome: Outcome) -> Figures:
        counters = read_counters(folder)
        # Where nothing is served no pool is made, and without a pool nothing is told.
        must_serve = work.is_served and ending(outcome) == GOOD
        if must_serve and not counters.found:
            outcome.trouble = "the library left no statistics"
        elif must_serve and counters.served == 0:
            outcome.trouble = "the pool served nothing"
        n_passed = sum(counters.passed.values())
        return {"served": (counters.served, "requests"), "passed": (n_passed, "requests"),
                "driver_allocations": (counters.figures.get("extents", 0) + n_passed, "calls")}

    def _keep(self, work: str, rival: str, number: int, outcome: Outcome, figures: Figures) -> None:
        status = ending(outcome)
        if status == GOOD:
            new = [Record(work, rival, number, GOOD, name, value, unit) for name, (value, unit) in figures.items()]
        else:
            new = [Record(work, rival, number, " ".join(status.split())[:300])]
            failures = self._failures.get((work, rival), 0)
            self._failures[work, rival] = FAILURES_MOST if outcome.hung else failures + 1
        records.append(self._path, self._session, new)
        self.results.add(new)
        self._say(f"  {work}, {rival}, run {number}: {outcome.seconds:.1f} s, {status}")

    # ---- what is held ----

    def _begin(self) -> Optional[Held]:
        try:
            self._watch = self._watch or Watch()
            return Held(self._watch)
        except (Unwatched, OSError) as error:
            self._lose(error)
            return None

    def _lose(self, error: Exception) -> None:
        self._say(f"  held cannot be seen: {error}")
        if self._watch:
            self._watch.close()
        self._watch = None

    def _look(self, held: Optional[Held], mark: str) -> Dict[str, float]:
        try:
            now = held.look() if held else 0
            if held and self._context_bytes is not None and mark != MARK_OF_PEAK:
                return {f"held_{mark}": float(now - self._context_bytes)}
        except (Unwatched, OSError) as error:
            self._lose(error)
        return {}

    def _held_figures(self, held: Optional[Held]) -> Figures:
        try:
            if held and self._watch and self._context_bytes is not None:
                return {HELD: (held.peak_bytes() - self._context_bytes, "bytes")}
        except (Unwatched, OSError) as error:
            self._lose(error)
        return {}

    def _measure_context(self) -> None:
        """What a bare context makes the device hold; without that number nothing is said of held."""
        folder = made.FOLDER / "runs" / "context"
        clear(folder)
        held = self._begin()
        if held is None:
            return
        bare = Rival(CONTEXT_RIVAL, "", "")
        outcome = run([str(made.binary(made.CONTEXT))], environment(bare, self._library, folder), CONTEXT_LIMIT_S, folder,
                      lambda *_: {HELD: float(held.look())})
        seen = outcome.figures.get(HELD)
        if ending(outcome) == GOOD and seen is not None:
            self._context_bytes = int(seen)
        self._keep(CONTEXT_WORK, CONTEXT_RIVAL, 1, outcome, {HELD: (seen or 0.0, "bytes")})


def clear(folder: Path) -> None:
    """Leaves nothing of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()


def sources(selected: Iterable[Work]) -> List[str]:
    """Of the CUDA programs that are needed."""
    return [made.CONTEXT, *(work.source for work in selected if not work.needs)]
