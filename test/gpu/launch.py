# SPDX-License-Identifier: MIT
"""How each run of a program is started: its folder, its command, its environment."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict, List

import build
import memcheck
from catalogue import DRIVER, PRELOADED, TRUTHS, Program

RUNS = build.BUILD / "gpu-runs"


def fresh_folder(program: Program, label: str) -> Path:
    """Where a run keeps its outputs; nothing of an earlier one is left in it."""
    folder = RUNS / folder_name(program, label)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    return folder


def folder_name(program: Program, label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in f"{program.full_name}-{label}")


def command_of(program: Program, label: str, library: Path, folder: Path) -> List[str]:
    if program.cudart == DRIVER:
        return _comparison(program.source, label, library, build.binary(program))
    if not program.cudart:
        return [sys.executable, str(build.source_of(program)), *program.arguments]
    return [*memcheck.prefix(program.sanitizer, folder), str(build.binary(program)), *program.arguments]


def _comparison(name: str, label: str, library: Path, binary: Path) -> List[str]:
    """These tell by their own exit status whether the program prints what it should; they preload it themselves."""
    expected = str(TRUTHS / "expected" / f"{name}.txt")
    if label == PRELOADED:
        known = str(TRUTHS / "preloaded" / f"{name}.diff")
        return [str(TRUTHS / "compare-preloaded"), expected, known, str(library), str(binary)]
    return [str(TRUTHS / "compare"), expected, str(binary)]


def environment(program: Program, label: str, library: Path, folder: Path) -> Dict[str, str]:
    env = {**os.environ, **program.env}
    if label == PRELOADED:
        if program.cudart != DRIVER:
            env["LD_PRELOAD"] = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD", "")]))
        env["VPMM_STATS"] = f"{folder}/stats.%p.json"
        env["VPMM_DUMP"] = f"{folder}/dump.json"
        env["VPMM_DUMP_MAX"] = "1T"
        env["VPMM_DUMP_FORMAT"] = "json"
    return env
