# SPDX-License-Identifier: MIT
"""The GPU suites: runs every selected program bare, bare again and preloaded, and compares.

Programs of a part that do not need the device for themselves run side by side; the others run one after the other.
Ends with 0 when all is well, 1 when it is not, 2 for wrong arguments or a failed build, 77 without a GPU.
"""
from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, Optional

import build
import catalogue
import device
import verdict
from catalogue import Program
from counters import dump_figures, json_values, read_counters
from process import Figures, Look, Outcome, printed_figures, run
from verdict import AGAIN, BARE, PRELOADED, Result

PART_LIMIT_S = 480.0
DUMP_LIMIT_S = 10.0
N_RUNS = len((BARE, AGAIN, PRELOADED))
RUNS = build.BUILD / "gpu-runs"


class Checker:
    """Runs programs with one library."""

    def __init__(self, library: Path, jobs: int, devices: int) -> None:
        self.library = library
        self.jobs = jobs
        self.devices = devices
        self._finishing = threading.Lock()

    def part(self, programs: List[Program]) -> List[Result]:
        """All programs of one part, judged, in the order given."""
        deadline = time.monotonic() + PART_LIMIT_S
        results = [Result(p, left_out=self._why_left_out(p)) for p in programs]
        runnable = [r for r in results if not r.left_out]
        tasks = [(r, label) for r in runnable if not r.program.alone for label in (BARE, AGAIN, PRELOADED)]
        with ThreadPoolExecutor(self.jobs) as workers:
            list(workers.map(lambda task: self._run(*task, deadline), tasks))
        for result in runnable:
            if result.program.alone:
                for label in (BARE, AGAIN, PRELOADED):
                    self._run(result, label, deadline)
        return results

    def _why_left_out(self, program: Program) -> str:
        if program.devices > self.devices:
            return f"needs {program.devices} devices"
        if program.needs and importlib.util.find_spec(program.needs) is None:
            return "not installed"
        return ""

    def _run(self, result: Result, label: str, deadline: float) -> None:
        program = result.program
        folder = fresh_folder(program, label)
        limit_s = min(program.limit_s, deadline - time.monotonic())
        preloaded = label == PRELOADED
        if limit_s > 0:
            outcome = run(command_of(program), self._environment(program, folder, preloaded), limit_s, folder,
                          look_of(program, folder, preloaded))
            outcome.figures.update(printed_figures(outcome.output))
        else:
            outcome = Outcome(trouble="the part's time is over")
        with self._finishing:
            result.outcomes[label] = outcome
            if preloaded:
                result.counters = read_counters(folder)
            if len(result.outcomes) == N_RUNS:
                finish(result)
                say(f"  {'good' if result.good else 'NOT GOOD'}: {program.full_name}")

    def _environment(self, program: Program, folder: Path, preloaded: bool) -> Dict[str, str]:
        env = {**os.environ, **program.env}
        if preloaded:
            env["LD_PRELOAD"] = " ".join(filter(None, [str(self.library), os.environ.get("LD_PRELOAD", "")]))
            env["VPMM_STATS"] = f"{folder}/stats.%p.json"
            env["VPMM_DUMP"] = f"{folder}/dump.json"
            env["VPMM_DUMP_FORMAT"] = "json"
        return env


def fresh_folder(program: Program, label: str) -> Path:
    """Where a run keeps its outputs; nothing of an earlier one is left in it."""
    folder = RUNS / folder_name(program, label)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    return folder


def folder_name(program: Program, label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in f"{program.full_name}-{label}")


def command_of(program: Program) -> List[str]:
    if program.cudart:
        return [str(build.binary(program)), *program.arguments]
    return [sys.executable, str(build.HERE / "python" / f"{program.source}.py"), *program.arguments]


def look_of(program: Program, folder: Path, preloaded: bool) -> Optional[Look]:
    """What is done at the program's marks."""
    if program.look == "memory":
        return lambda mark, _pid, _before: {f"used_{mark}_mib": device.used_mib()}
    if program.look == "regions" and preloaded:
        return lambda _mark, pid, before: regions(pid, before + 1, folder / "dump.json")
    return None


def regions(pid: int, wanted: int, path: Path) -> Figures:
    """Asks a program for a dump, its `wanted`th, and waits until it is written. Raises ValueError when it never is."""
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + DUMP_LIMIT_S
    while time.monotonic() < deadline:
        try:
            dumps = json_values(path.read_text())
        except (OSError, ValueError):
            dumps = []
        if len(dumps) >= wanted:
            return {f"{name}_{wanted}": value for name, value in dump_figures(dumps[-1]).items()}
        time.sleep(0.02)
    raise ValueError(f"no dump within {DUMP_LIMIT_S:.0f} s of SIGUSR1")


def finish(result: Result) -> None:
    """Adds the figures that need several runs, then judges."""
    baseline = result.figure(BARE, "used_before_mib")
    for outcome in result.outcomes.values():
        after = outcome.figures.get("used_after_mib")
        if after is not None and baseline is not None:
            outcome.figures["held_mib"] = after - baseline
    verdict.judge(result)


def say(text: str) -> None:
    print(text, flush=True)


def report(results: List[Result]) -> None:
    """The tables, and what is known of everything that went wrong."""
    say("\n" + verdict.as_text(verdict.HEADS, verdict.rows(results)))
    figures = verdict.figure_rows(results)
    if figures:
        say(verdict.as_text(verdict.FIGURE_HEADS, figures))
    for result in results:
        if not result.left_out:
            describe(result)
    for line in verdict.problems(results):
        say(f"WRONG: {line}")


def describe(result: Result) -> None:
    """Measurements beyond the bars, what the library said, and the last words of runs that were not alike."""
    name = result.program.full_name
    others = verdict.other_figures(result)
    if others:
        say(f"{name}: {', '.join(f'{key} {verdict.number(value)}' for key, value in others.items())}")
    for line in [line for line in result.outcomes[PRELOADED].errors.splitlines() if line.startswith("vpmm[")][:4]:
        say(f"{name}: {line}")
    if result.differences:
        for label, outcome in result.outcomes.items():
            for line in [*outcome.output.splitlines()[-3:], *outcome.errors.splitlines()[-12:]]:
                say(f"  {name} {label}| {line}")


def parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu-check", description="Runs CUDA programs bare and preloaded, and compares what they print.",
        epilog=f"Parts: {', '.join(catalogue.parts())}. PART/PROGRAM selects single programs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part (default: all)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write the tables to FILE, in Markdown")
    parser.add_argument("--library", type=Path, metavar="FILE", help="check this library instead of building one")
    parser.add_argument("--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 2) // 2)),
                        help="programs side by side (default: %(default)s)")
    parser.add_argument("--build-only", action="store_true", help="build everything and run nothing")
    return parser.parse_args(arguments)


def main(arguments: List[str]) -> int:
    options = parse(arguments)
    start = time.monotonic()
    try:
        selected = catalogue.select(options.names)
        library = options.library.resolve(strict=True) if options.library else build.library()
        build.programs(selected)
    except (ValueError, OSError, build.BuildError) as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 2
    say(f"built in {time.monotonic() - start:.0f} s: {library}")
    if options.build_only:
        return 0
    devices = device.count()
    if devices == 0:
        print("gpu-check: no GPU here (nvidia-smi names none)", file=sys.stderr)
        return 77
    checker = Checker(library, options.jobs, devices)
    results: List[Result] = []
    for part in catalogue.parts():
        programs = [p for p in selected if p.part == part]
        if programs:
            part_start = time.monotonic()
            results += checker.part(programs)
            say(f"{part}: {time.monotonic() - part_start:.0f} s")
    report(results)
    if options.table:
        machine = f"{device.describe()}, {time.strftime('%Y-%m-%d', time.gmtime())}"
        command = shlex.join(["scripts/gpu-check", *options.names])
        options.table.write_text(verdict.page(results, machine, command))
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
