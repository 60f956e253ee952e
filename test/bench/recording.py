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
import split
from process import run
from work import GIB, MIB

HERE = Path(__file__).resolve().parent
LIMIT_S = 120.0
# All of the ten programs together are to take less than eight minutes.
SHORT_LIMIT_S = 45.0
# What a recording of the ten is to be like, so that it can be replayed in seconds and shows something.
# The recorder times 60,000 kernels, copies and graphs.
BOUNDS = {"mallocs": (2000, 100000), "large": (1000, 100000), "bytes at the peak": (1 * GIB, 60 * GIB), "works": (0, 60000),
          "bytes packed": (0, 2 * MIB)}


@dataclass(frozen=True)
class Target:
    """A program that can be recorded: a CUDA program, or one in Python."""

    source: str
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    is_python: bool = False
    limit_s: float = LIMIT_S


def _new(source: str, **env: str) -> Target:
    """One of the ten, in Python where `source` is a Python program."""
    return Target(source, env=env, is_python=(HERE / "python" / f"{source}.py").exists(), limit_s=SHORT_LIMIT_S)


NO_CACHE = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
TARGETS = {
    "pipeline": Target("pipeline"),
    "side-streams": Target("side_streams", env=NO_CACHE, is_python=True),
    "serving": _new("serving", **NO_CACHE),
    "graph-networks": _new("graph_networks", **NO_CACHE),
    "adapters": _new("adapters", **NO_CACHE),
    "segmentation": _new("segmentation", **NO_CACHE),
    # Each tensor is a cudaMalloc.
    "gaussian-processes": _new("gaussian_processes", PYTORCH_NO_CUDA_MEMORY_CACHING="1"),
    "sparse-solvers": _new("sparse_solvers"),
    "fft-codes": _new("fft_codes"),
    "query-engines": _new("query_engines"),
    "fsdp-ranks": _new("fsdp_ranks", **NO_CACHE),
    "many-streams": _new("many_streams"),
}


def sources(names: Iterable[str]) -> List[str]:
    """Of those targets that are CUDA programs."""
    return [TARGETS[name].source for name in names if not TARGETS[name].is_python]


def complaints(counts: Mapping[str, int], packed_bytes: int) -> List[str]:
    """What of a recording is not as those of the ten are to be."""
    found = {**counts, "bytes packed": packed_bytes}
    return [f"{found[what]} {what}, not {least} to {most}" for what, (least, most) in BOUNDS.items()
            if not least <= found[what] <= most]


def record(name: str, recorder: Path, folder: Path) -> str:
    """Records one target into `folder`; what became of it."""
    target = TARGETS[name]
    raw = made.FOLDER / "runs" / f"{name}.raw.csv"
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.unlink(missing_ok=True)
    command = [sys.executable, "-B", str(HERE / "python" / f"{target.source}.py")] if target.is_python else \
        [str(made.binary(target.source))]
    env = {**os.environ, **target.env, "LD_PRELOAD": str(recorder), "RECORD": str(raw)}
    outcome = run([*command, *target.arguments], env, target.limit_s, raw.parent)
    if outcome.code != 0 or not raw.exists():
        why = "no recording" if outcome.code == 0 else f"ended with {outcome.code} after {outcome.seconds:.0f} s"
        last = "\n".join([*outcome.output.splitlines(), *outcome.errors.splitlines(), outcome.trouble][-8:])
        return f"{name}: failed, {why}\n{last}"
    path = folder / (split.recording_of(name) if name in split.NAMES else f"{name}.csv.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = rawtrace.pack(raw, path)
    said = [f"{name}: {', '.join(f'{n} {what}' for what, n in counts.items())}; {outcome.seconds:.0f} s; {path}"]
    if name in split.NAMES:
        said += [f"  WRONG: {text}" for text in complaints(counts, path.stat().st_size)]
    return "\n".join(said)


def main(arguments: Sequence[str]) -> int:
    """scripts/bench record [NAME...] [--all-new] [--out DIR]"""
    parser = argparse.ArgumentParser(prog="scripts/bench record", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TARGETS)} (default: all)")
    parser.add_argument("--all-new", action="store_true", help=f"the ten programs of split.py: {', '.join(split.NAMES)}")
    parser.add_argument("--out", type=Path, default=made.FOLDER / "recorded", metavar="DIR")
    options = parser.parse_args(arguments)
    asked = [*options.names, *(split.NAMES if options.all_new else ())]
    names: List[str] = list(dict.fromkeys(asked)) or list(TARGETS)
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
    is_good = True
    for name in names:
        outcome = record(name, recorder, options.out)
        print(outcome, flush=True)
        is_good = is_good and ": failed" not in outcome and "WRONG" not in outcome
    return 0 if is_good else 1
