# SPDX-License-Identifier: MIT
"""compute-sanitizer around a program: where it is, what it says, and whether it can be used on this device at all.

Where it is missing or refuses the device, a program was not run, which is neither a pass nor a failure. Whether it
can be used is told by the bare run alone, so nothing that the library does can turn a failure into "not run".
"""
from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

import build
from catalogue import BARE
from process import Outcome

FIGURE = "reported_errors"
LOG = "sanitizer.txt"
MARK = "========="
N_REPORTS = 20
N_LINES = 12
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
REFUSAL = re.compile(r"Device not supported|Internal Sanitizer Error|[Ii]nitialization failed|Unable to find injection")


def find() -> Optional[Path]:
    """On the path, or in nvcc's toolkit."""
    places = [shutil.which("compute-sanitizer") or ""]
    try:
        home = build.find_nvcc().resolve().parent.parent
        places += [str(home / "bin" / "compute-sanitizer"), str(home / "compute-sanitizer" / "compute-sanitizer")]
    except build.BuildError:
        pass
    return next((Path(place) for place in places if place and os.access(place, os.X_OK)), None)


def prefix(options: Sequence[str], folder: Path) -> List[str]:
    """What stands before the program's own command; nothing without options."""
    tool = find() if options else None
    return [str(tool), *options, "--print-limit", str(N_REPORTS), "--log-file", str(folder / LOG)] if tool else []


def read(outcome: Outcome, folder: Path) -> None:
    """Moves the tool's words from the program's output into its errors, and the number of errors into its figures."""
    log = folder / LOG
    said = log.read_text(errors="backslashreplace").splitlines() if log.exists() else []
    lines = outcome.output.splitlines(keepends=True)
    said += [line.rstrip() for line in lines if line.startswith(MARK)]
    outcome.output = "".join(line for line in lines if not line.startswith(MARK))
    said += [line for line in outcome.errors.splitlines() if line.startswith(MARK) or REFUSAL.search(line)]
    numbers = SUMMARY.findall("\n".join(said))
    if numbers:
        outcome.figures[FIGURE] = float(sum(map(int, numbers)))
    telling = [line for line in said if line.strip("= ") and not line.startswith(f"{MARK} COMPUTE-SANITIZER")]
    outcome.errors = "\n".join([*outcome.errors.splitlines(), *telling[:N_LINES]])


def refusal(bare: Outcome) -> str:
    """Why a bare run that was read says nothing about its program; empty when it does."""
    for line in bare.errors.splitlines():
        if REFUSAL.search(line):
            return f"not run: compute-sanitizer refuses the device: {line.strip('= ')}"
    if bare.trouble:
        return f"not run: {bare.trouble}"
    if bare.hung:
        return f"not run: compute-sanitizer does not finish bare within {bare.seconds:.0f} s"
    if FIGURE not in bare.figures:
        words = [line for line in bare.errors.splitlines() if line.strip()]
        return f"not run: compute-sanitizer gives no summary: {words[-1].strip('= ') if words else 'it says nothing'}"
    return ""


def differences(runs: Mapping[str, Outcome], may_report: bool) -> List[str]:
    """What is wrong with the numbers of errors."""
    found: List[str] = []
    counts: Dict[str, float] = {}
    for label, outcome in runs.items():
        if FIGURE not in outcome.figures:
            found.append(f"{label}: compute-sanitizer gives no summary")
            continue
        counts[label] = outcome.figures[FIGURE]
        if counts[label] and not may_report:
            found.append(f"{label}: compute-sanitizer reports {counts[label]:.0f} errors")
    for label, count in counts.items():
        if BARE in counts and count != counts[BARE] and may_report:
            found.append(f"{label}: compute-sanitizer reports {count:.0f} errors, bare {counts[BARE]:.0f}")
    return found
