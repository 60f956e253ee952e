# SPDX-License-Identifier: MIT
"""Runs one program: its own process group, a time limit that ends the whole group, and answers to its marks.

A mark is a line that begins with '@': the program waits there until it is answered. Whoever runs it may look at
the program or the device meanwhile, and what was seen joins the figures that the program printed itself.
"""
from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

Figures = Dict[str, float]
# (mark, process id, how many marks came before) -> what was seen.
Look = Callable[[str, int, int], Figures]

GRACE_S = 10.0


@dataclass
class Outcome:
    """What became of a run."""

    code: Optional[int] = None  # None: it was ended at its limit
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    figures: Figures = field(default_factory=dict)
    trouble: str = ""  # why the run could not be made or watched

    @property
    def hung(self) -> bool:
        return self.code is None and not self.trouble


def run(
    command: Sequence[str], env: Mapping[str, str], limit_s: float, folder: Path, look: Optional[Look] = None
) -> Outcome:
    """Runs `command`; keeps its two outputs in `folder` as well. Never raises for what the program does."""
    outcome = Outcome()
    start = time.monotonic()
    errors_path = folder / "stderr"
    try:
        with errors_path.open("wb") as errors:
            process = subprocess.Popen(
                command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                cwd=folder, start_new_session=True,
            )
    except OSError as error:
        outcome.trouble = f"cannot be started: {error}"
        return outcome
    try:
        output = _converse(process, start + limit_s, look, outcome)
    finally:
        _end_group(process)
    outcome.seconds = time.monotonic() - start
    outcome.output = output.decode(errors="backslashreplace")
    outcome.errors = errors_path.read_bytes().decode(errors="backslashreplace")
    (folder / "stdout").write_bytes(output)
    return outcome


def _converse(process: subprocess.Popen, deadline: float, look: Optional[Look], outcome: Outcome) -> bytes:
    """Reads until the program is over or its time is; sets the outcome's code when it ended by itself."""
    assert process.stdout is not None
    whole, seen, marks = bytearray(), 0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            # A child that the program left behind may hold its output open. What the program itself wrote is there once it
            # has ended.
            has_ended = process.poll() is not None
            ready = selector.select(0.0 if has_ended else max(0.0, min(0.2, deadline - time.monotonic())))
            if not ready:
                if has_ended:
                    break
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            whole += chunk
            while (end := whole.find(b"\n", seen)) >= 0:
                line = whole[seen:end].decode(errors="backslashreplace")
                seen = end + 1
                if line.startswith("@"):
                    _answer(process, line[1:], marks, look, outcome)
                    marks += 1
    try:
        outcome.code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    return bytes(whole)


def _answer(process: subprocess.Popen, mark: str, before: int, look: Optional[Look], outcome: Outcome) -> None:
    if look is not None:
        try:
            outcome.figures.update(look(mark, process.pid, before))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            outcome.trouble = f"at {mark}: {error}"
    assert process.stdin is not None
    try:
        process.stdin.write(b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass


def _end_group(process: subprocess.Popen) -> None:
    """Ends whatever is left of the program's group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    for stream in (process.stdin, process.stdout):
        try:
            if stream is not None:
                stream.close()
        except BrokenPipeError:
            pass


def printed_figures(output: str) -> Figures:
    """The measurements in a program's output: lines "# name value" with a number as value."""
    figures: Figures = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "#":
            try:
                figures[words[1]] = float(words[2])
            except ValueError:
                continue
    return figures


def compared(output: str) -> List[str]:
    """The lines that must be the same in every run, with their ends."""
    return [line for line in output.splitlines(keepends=True) if not line.startswith(("#", "@"))]


def difference(one: str, other: str) -> str:
    """The first compared line in which two outputs differ, in words; empty when there is none."""
    ours, theirs = compared(one), compared(other)
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        if a != b:
            return f"line {number}: {a.rstrip()!r} and {b.rstrip()!r}"
    if len(ours) != len(theirs):
        longer = ours if len(ours) > len(theirs) else theirs
        return f"{len(ours)} and {len(theirs)} lines; first extra: {longer[min(len(ours), len(theirs))].rstrip()!r}"
    return ""
