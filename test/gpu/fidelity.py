# SPDX-License-Identifier: MIT
"""Writes anew what the truth programs print on a bare GPU: what the simulated device is held to."""
from __future__ import annotations

import os
from pathlib import Path
from typing import List, Tuple

import build
from catalogue import TRUTHS, Program
from process import Outcome, run

LIMIT_S = 30.0


def refresh(programs: List[Program], expected: Path = TRUTHS / "expected") -> Tuple[List[str], List[str]]:
    """Runs each program twice and keeps its output if both runs end well and alike. Returns what was done, a line
    for each program, and what was not, likewise."""
    done, refused = [], []
    build.PROGRAMS.mkdir(parents=True, exist_ok=True)
    for program in programs:
        command = [str(build.binary(program))]
        one, other = (run(command, os.environ, LIMIT_S, build.PROGRAMS) for _ in range(2))
        why = _unusable(one, other)
        if why:
            refused.append(f"{program.name}: kept as it was: {why}")
            continue
        path = expected / f"{program.name}.txt"
        before = path.read_text() if path.exists() else ""
        path.write_text(one.output)
        done.append(f"{program.name}: {_change(before, one.output)}")
    return done, refused


def _unusable(one: Outcome, other: Outcome) -> str:
    for outcome in (one, other):
        if outcome.trouble or outcome.hung or outcome.code != 0:
            ending = outcome.trouble or ("it hangs" if outcome.hung else f"it ends with {outcome.code}")
            last = (outcome.output.splitlines() or ["nothing"])[-1]
            return f"{ending}; the last line is {last!r}"
    ours, theirs = one.output.splitlines(), other.output.splitlines()
    if ours != theirs:
        number = next((i for i, (a, b) in enumerate(zip(ours, theirs), 1) if a != b), min(len(ours), len(theirs)) + 1)
        return f"two runs differ at line {number}"
    return ""


def _change(before: str, now: str) -> str:
    old, new = before.splitlines(), now.splitlines()
    changed = sum(a != b for a, b in zip(old, new)) + abs(len(old) - len(new))
    return f"{changed} lines changed" if before != now else "as before"
