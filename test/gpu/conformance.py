# SPDX-License-Identifier: MIT
"""Compares what a program prints bare and preloaded, line by line, against the table of differences that are right.

The table is conformance/differences.txt; docs/DIFFERENCES.md is written from it. A difference that it does not list
is wrong, and so is a listed one that no longer occurs. A second bare run tells the lines that differ by themselves.

    conformance.py NAME PROGRAM LIBRARY [RUNTIME]   runs a program of the driver API three times and judges it
    conformance.py --write | --check                docs/DIFFERENCES.md
"""
from __future__ import annotations

import collections
import difflib
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from process import compared, run

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "conformance"
TABLE = SOURCES / "differences.txt"
PAGE = HERE.parent.parent / "docs" / "DIFFERENCES.md"
GPU, SIMULATED = "gpu", "simulated"
CAUSES_MOST = 7
LIMIT_S = 120.0
ANYTHING = "<any>"

# What one run printed in a place where the other printed something else, or nothing (None).
Pair = Tuple[Optional[str], Optional[str]]


class TableError(Exception):
    """A line of the table that cannot be understood."""


@dataclass(frozen=True)
class Entry:
    """A pair of lines that may differ in one program, in all places where they occur."""

    program: str
    bare: Optional[str]
    preloaded: Optional[str]
    where: str = ""  # on which kind of device it is seen; empty: on both

    def explains(self, pair: Pair) -> bool:
        return _matches(self.bare, pair[0]) and _matches(self.preloaded, pair[1])


@dataclass
class Cause:
    """Why some lines differ, and why that is right."""

    name: str
    title: str
    reason: str = ""
    entries: List[Entry] = field(default_factory=list)


@dataclass
class Table:
    causes: List[Cause] = field(default_factory=list)
    unsteady: List[Entry] = field(default_factory=list)  # lines that differ from one bare run to the next

    def entries_of(self, program: str, where: str) -> List[Entry]:
        return [e for c in self.causes for e in c.entries if e.program == program and e.where in ("", where)]

    def is_unsteady(self, program: str, line: Optional[str]) -> bool:
        return any(e.program == program and _matches(e.bare, line) for e in self.unsteady)


@dataclass
class Comparison:
    """What came out: what has to be explained, what is explained without need, what no run can be held to."""

    unexplained: List[Pair] = field(default_factory=list)
    stale: List[Entry] = field(default_factory=list)
    unsteady: List[str] = field(default_factory=list)  # not listed as such
    explained: int = 0

    def complaints(self) -> List[str]:
        times = collections.Counter(self.unexplained)
        found = [f"preloaded: not explained, {n} times: {pair_text(pair)}" for pair, n in times.items()]
        found += [f"preloaded: explained, but not seen: {pair_text((e.bare, e.preloaded))}" for e in self.stale]
        return found + [f"bare: differs by itself: {line!r}" for line in self.unsteady]


def pair_text(pair: Pair) -> str:
    return " and ".join("no line" if line is None else repr(line) for line in pair)


def _matches(pattern: Optional[str], line: Optional[str]) -> bool:
    if pattern is None or line is None:
        return pattern is line
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANYTHING))), line) is not None


def read_table(text: str) -> Table:
    """The table from its text. Raises TableError that names the line."""
    table = Table()
    into: Optional[List[Entry]] = None
    programs: List[str] = []
    where, bare = "", None
    for number, line in enumerate([*text.splitlines(), "#"], 1):
        word, _, rest = line.partition(" ")
        if bare is not None and word != "+":
            _add(into, programs, bare, None, where, number)
            bare = None
        if word == "cause":
            name, _, title = rest.partition(": ")
            table.causes.append(Cause(name, title))
            into, programs = table.causes[-1].entries, []
        elif word == "reason" and table.causes:
            table.causes[-1].reason = f"{table.causes[-1].reason} {rest}".strip()
        elif word == "unsteady":
            into, programs, where = table.unsteady, rest.split(), ""
        elif word == "program":
            before, _, where = rest.partition(" only ")
            programs = before.split()
        elif word == "-":
            bare = rest
        elif word == "+":
            _add(into, programs, bare, rest, where, number)
            bare = None
        elif word not in ("", "#"):
            raise TableError(f"line {number}: {line}")
    if len(table.causes) > CAUSES_MOST:
        raise TableError(f"{len(table.causes)} causes are more than {CAUSES_MOST}")
    return table


def _add(into: Optional[List[Entry]], programs: List[str], bare: Optional[str], preloaded: Optional[str], where: str,
         number: int) -> None:
    if into is None or not programs or where not in ("", GPU, SIMULATED):
        raise TableError(f"line {number}: a difference without a cause, a program or a known device")
    into.extend(Entry(program, bare, preloaded, where) for program in programs)


def load_table() -> Table:
    return read_table(TABLE.read_text())


def pairs(one: Sequence[str], other: Sequence[str]) -> Iterator[Tuple[int, Pair]]:
    """Where two outputs differ: the line of `one`, and both lines."""
    if len(one) == len(other):
        yield from ((i, pair) for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1])
        return
    for tag, a, a_end, b, b_end in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            for k in range(max(a_end - a, b_end - b)):
                yield min(a + k, a_end), (one[a + k] if a + k < a_end else None,
                                          other[b + k] if b + k < b_end else None)


def _lines(output: str) -> List[str]:
    return [line.rstrip("\n") for line in compared(output)]


def compare(program: str, outputs: Mapping[str, str], table: Table, where: str) -> Comparison:
    """Judges the outputs "bare", "again" and "preloaded" of a program."""
    bare, again, preloaded = (_lines(outputs[name]) for name in ("bare", "again", "preloaded"))
    found = Comparison()
    by_itself = set()
    for at, pair in pairs(bare, again):
        by_itself.add(at)
        if not any(table.is_unsteady(program, line) for line in pair if line is not None):
            found.unsteady.append(pair[0] if pair[0] is not None else str(pair[1]))
    entries = table.entries_of(program, where)
    seen = set()
    for at, pair in pairs(bare, preloaded):
        if at in by_itself or table.is_unsteady(program, pair[0]):
            continue
        entry = next((e for e in entries if e.explains(pair)), None)
        if entry is None:
            found.unexplained.append(pair)
        else:
            found.explained += 1
            seen.add(entry)
    found.stale = [entry for entry in entries if entry not in seen]
    return found


def as_entries(program: str, found: Comparison) -> str:
    """What is not explained, as the table would list it."""
    lines = [f"program {program}"]
    for bare, preloaded in dict.fromkeys(found.unexplained):
        lines += [f"- {bare}"] if bare is not None else []
        lines += [f"+ {preloaded}"] if preloaded is not None else []
    return "\n".join(lines) + "\n"


# ---- the page ----

def page(table: Table) -> str:
    """docs/DIFFERENCES.md: every difference by cause."""
    text = [
        "# Every line that differs\n",
        "The programs of `test/gpu/conformance` print all that an ordinary program can observe. Each runs bare and "
        "preloaded, and these are all lines that differ, by cause. `<any>` stands for any text. Written from "
        "`test/gpu/conformance/differences.txt` by `scripts/gpu-check --differences`; do not edit.\n",
    ]
    for cause in table.causes:
        text.append(f"## {cause.title}\n")
        text.append(f"{cause.reason}\n")
        text += _rows(cause.entries)
    return "\n".join(text)


def _rows(entries: Sequence[Entry]) -> List[str]:
    rows: Dict[Tuple[Optional[str], Optional[str]], List[str]] = {}
    for entry in entries:
        only = f" ({'simulated' if entry.where == SIMULATED else 'a GPU'} only)" if entry.where else ""
        rows.setdefault((entry.bare, entry.preloaded), []).append(f"`{entry.program}`{only}")
    lines = ["| bare | with the library | seen in |", "|---|---|---|"]
    for (bare, preloaded), programs in rows.items():
        cells = [_cell(bare), _cell(preloaded), ", ".join(programs)]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _cell(line: Optional[str]) -> str:
    return "no line" if line is None else "`" + line.replace("|", "\\|") + "`"


# ---- a program of the driver API beside the simulated device ----

def run_simulated(name: str, program: str, library: str, runtime: str) -> int:
    """Runs the program bare, bare again and preloaded; says what is wrong."""
    outputs: Dict[str, str] = {}
    failed = False
    for label in ("bare", "again", "preloaded"):
        env = dict(os.environ)
        if label == "preloaded":
            env["LD_PRELOAD"] = f"{runtime} {library}".strip()
            env["VPMM_LOG"] = "error"
            if runtime:
                env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
                env["VPMM_VA_SIZE"] = "256G"
        folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"vpmm-conformance-{os.getpid()}-{label}"
        folder.mkdir()
        try:
            outcome = run([program], env, LIMIT_S, folder)
        finally:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        outputs[label] = outcome.output
        if outcome.code != 0 or outcome.errors:
            print(f"{name}, {label}: ends with {outcome.code} and says:\n{outcome.errors}"
                  f"{''.join(outcome.output.splitlines(keepends=True)[-3:])}")
            failed = True
    found = compare(name, outputs, load_table(), SIMULATED)
    for line in found.complaints():
        print(f"{name}: {line}")
    if found.unexplained:
        print(as_entries(name, found))
    return 1 if failed or found.complaints() else 0


def main(arguments: List[str]) -> int:
    if arguments == ["--write"]:
        PAGE.write_text(page(load_table()))
        return 0
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text() == page(load_table()):
            return 0
        print("docs/DIFFERENCES.md is not what scripts/gpu-check --differences writes")
        return 1
    if len(arguments) not in (3, 4):
        print(__doc__)
        return 2
    name, *paths = arguments
    program, library, *runtime = map(os.path.abspath, paths)
    return run_simulated(name, program, library, runtime[0] if runtime else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
