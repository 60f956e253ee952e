# SPDX-License-Identifier: MIT
"""Records what a program asks of the driver, as a trace that can be replayed."""
from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, List, Mapping, Sequence

import made
import build
import rawtrace
from process import run

HERE = Path(__file__).resolve().parent
LIMIT_S = 120.0


@dataclass(frozen=True)
class Target:
    """A program that can be recorded: a CUDA program, or one in Python."""

    source: str
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    is_python: bool = False


NO_CACHE = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
TARGETS = {
    "pipeline": Target("pipeline"),
    "side-streams": Target("side_streams", env=NO_CACHE, is_python=True),
}


def sources(names: Iterable[str]) -> List[str]:
    """Of those targets that are CUDA programs."""
    return [TARGETS[name].source for name in names if not TARGETS[name].is_python]


def record(name: str, recorder: Path, folder: Path) -> str:
    """Records one target into `folder`; what became of it."""
    target = TARGETS[name]
    raw = made.FOLDER / "runs" / f"{name}.raw.csv"
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.unlink(missing_ok=True)
    command = [sys.executable, "-B", str(HERE / "python" / f"{target.source}.py")] if target.is_python else \
        [str(made.binary(target.source))]
    env = {**os.environ, **target.env, "LD_PRELOAD": str(recorder), "RECORD": str(raw)}
    outcome = run([*command, *target.arguments], env, LIMIT_S, raw.parent)
    if outcome.code != 0 or not raw.exists():
        last = "\n".join([*outcome.output.splitlines(), *outcome.errors.splitlines(), outcome.trouble][-8:])
        return f"{name}: failed, {'no recording' if outcome.code == 0 else f'ended with {outcome.code}'}\n{last}"
    path = folder / f"{name}.csv.gz"
    lines = ", ".join(f"{n} {mark}" for mark, n in rawtrace.pack(raw, path).items())
    return f"{name}: {lines} in {path}"


def main(arguments: Sequence[str]) -> int:
    """scripts/bench record NAME... [--out DIR]"""
    parser = argparse.ArgumentParser(prog="scripts/bench record", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TARGETS)} (default: all)")
    parser.add_argument("--out", type=Path, default=made.FOLDER / "recorded", metavar="DIR")
    options = parser.parse_args(arguments)
    names: List[str] = options.names or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise ValueError(f"no program {unknown[0]!r} to record; there are {', '.join(TARGETS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        recorder = made.recorder()
        for trouble in made.programs(sources(names)):
            print(f"not built: {trouble}")
    except build.BuildError as error:
        raise OSError(str(error)) from error
    outcomes = [record(name, recorder, options.out) for name in names]
    print("\n".join(outcomes))
    return 1 if any(": failed" in outcome for outcome in outcomes) else 0
