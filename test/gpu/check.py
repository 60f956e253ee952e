# SPDX-License-Identifier: MIT
"""The GPU suites: runs every selected program bare and preloaded, and compares.

Programs of a part that do not need the device for themselves run side by side; the others run one after the other.
Ends with 0 when all is well, 1 when it is not, 2 for wrong arguments or a failed build, 77 without a GPU.
"""
from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, Optional

import build
import catalogue
import conformance
import device
import fidelity
import launch
import memcheck
import verdict
from catalogue import AGAIN, BARE, DRIVER, PRELOADED, Program
from counters import ask_dump, dump_figures, read_counters
from process import Figures, Look, Outcome, printed_figures, run
from verdict import Result

DIFF_LINES = 40


class Checker:
    """Runs programs with one library."""

    def __init__(self, library: Path, jobs: int, devices: int) -> None:
        self.shared_library = library
        self.jobs = jobs
        self.devices = devices
        self._finishing = threading.Lock()

    def part(self, programs: List[Program]) -> List[Result]:
        """All programs of one part, judged, in the order given."""
        deadline = time.monotonic() + catalogue.part_limit_s(programs[0].part)
        results = [Result(p, left_out=self._why_left_out(p)) for p in programs]
        runnable = [r for r in results if not r.left_out]
        tasks = [(r, label) for r in runnable if not r.program.alone for label in r.program.runs]
        with ThreadPoolExecutor(self.jobs) as workers:
            list(workers.map(lambda task: self._run(*task, deadline), tasks))
        for result in runnable:
            if result.program.alone:
                for label in result.program.runs:
                    if not result.left_out:
                        self._run(result, label, deadline)
        return results

    def _why_left_out(self, program: Program) -> str:
        if program.devices > self.devices:
            return f"needs {program.devices} devices"
        if program.needs and importlib.util.find_spec(program.needs) is None:
            return "not installed"
        if program.sanitizer and memcheck.find() is None:
            return "not run: no compute-sanitizer"
        return ""

    def _run(self, result: Result, label: str, deadline: float) -> None:
        program = result.program
        folder = launch.fresh_folder(program, label)
        limit_s = min(program.limit_s, deadline - time.monotonic())
        if limit_s > 0:
            outcome = run(launch.command_of(program, label, self.shared_library, folder),
                          launch.environment(program, label, self.shared_library, folder), limit_s, folder,
                          look_of(program, folder, label == PRELOADED))
            outcome.figures.update(printed_figures(outcome.output))
        else:
            outcome = Outcome(trouble="the part's time is over")
        with self._finishing:
            result.outcomes[label] = outcome
            if program.sanitizer:
                memcheck.read(outcome, folder)
                if label == BARE:
                    result.left_out = memcheck.refusal(outcome)
            if label == PRELOADED:
                result.counters = read_counters(folder)
            if result.left_out:
                say(f"  {result.left_out}: {program.full_name}")
            elif len(result.outcomes) == len(program.runs):
                finish(result)
                say(f"  {'good' if result.good else 'NOT GOOD'}: {program.full_name}")


def look_of(program: Program, folder: Path, preloaded: bool) -> Optional[Look]:
    """What is done at the program's marks."""
    if program.look == "memory":
        return lambda mark, _pid, _before: {f"used_{mark}_mib": device.used_mib()}
    if program.look == "regions" and preloaded:
        return lambda _mark, pid, before: regions(pid, before + 1, folder / "dump.json")
    return None


def regions(pid: int, wanted: int, path: Path) -> Figures:
    """The figures of a program's `wanted`th dump."""
    return {f"{name}_{wanted}": value for name, value in dump_figures(ask_dump(pid, wanted, path)).items()}


def finish(result: Result) -> None:
    """Adds the figures that need several runs, then judges."""
    baseline = result.figure(BARE, "used_before_mib")
    for outcome in result.outcomes.values():
        after = outcome.figures.get("used_after_mib")
        if after is not None and baseline is not None:
            outcome.figures["held_mib"] = after - baseline
    preloaded, *bare = (result.figure(label, "bandwidth_gb_s") for label in (PRELOADED, BARE, AGAIN))
    if preloaded and all(bare):
        result.outcomes[PRELOADED].figures["bandwidth_percent"] = 100 * preloaded * len(bare) / sum(bare)
    device_bytes = result.figure(PRELOADED, "device_bytes")
    for name in ("live_peak", "held_peak"):
        peak_bytes = result.figure(PRELOADED, f"{name}_bytes")
        if device_bytes and peak_bytes is not None:
            result.outcomes[PRELOADED].figures[f"{name}_percent"] = 100 * peak_bytes / device_bytes
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
    say(verdict.counts(results))


def describe(result: Result) -> None:
    """Measurements beyond the bars, what the library said, and the last words of runs that were not alike."""
    name = result.program.full_name
    others = verdict.other_figures(result)
    if others:
        say(f"{name}: {', '.join(f'{key} {verdict.number(value)}' for key, value in others.items())}")
    for line in [line for line in result.outcomes[PRELOADED].errors.splitlines() if line.startswith("vpmm[")][:4]:
        say(f"{name}: {line}")
    if result.differences and not result.unexplained:
        # A comparison prints what differs; of a program its last words tell most.
        shown = slice(0, DIFF_LINES) if result.program.cudart == DRIVER else slice(-3, None)
        for label, outcome in result.outcomes.items():
            for line in [*outcome.output.splitlines()[shown], *outcome.errors.splitlines()[-12:]]:
                say(f"  {name} {label}| {line}")


def keep_unexplained(results: List[Result], path: Path) -> None:
    """What conformance programs show and the table does not list, as it would list it; no file where there is nothing."""
    text = "".join(result.unexplained for result in results)
    path.unlink(missing_ok=True)
    if text:
        path.write_text(text)
        say(f"not explained: {path}")


def parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu-check", description="Runs CUDA programs bare and preloaded, and compares what they print.",
        epilog=f"Parts: {', '.join(catalogue.parts())}. PART/PROGRAM selects single programs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part (default: all)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write the tables to FILE, in Markdown")
    parser.add_argument("--library", dest="shared_library", type=Path, metavar="FILE",
                        help="check this library instead of building one")
    parser.add_argument("--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 2) // 2)),
                        help="programs side by side (default: %(default)s)")
    parser.add_argument("--differences", action="store_true", help="write docs/DIFFERENCES.md anew and run nothing")
    parser.add_argument("--build-only", action="store_true", help="build everything and run nothing")
    parser.add_argument("--refresh", action="store_true",
                        help="first write test/programs/expected anew from this GPU (with fidelity)")
    return parser.parse_args(arguments)


def main(arguments: List[str]) -> int:
    options = parse(arguments)
    if options.differences:
        return conformance.main(["--write"])
    start = time.monotonic()
    try:
        selected = catalogue.select(options.names)
        library = options.shared_library.resolve(strict=True) if options.shared_library else build.shared_library()
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
    done, refused = [], []
    if options.refresh:
        done, refused = fidelity.refresh([p for p in selected if p.cudart == DRIVER])
        for line in [*done, *refused]:
            say(f"refresh: {line}")
    results: List[Result] = []
    for part in catalogue.parts():
        programs = [p for p in selected if p.part == part]
        if programs:
            part_start = time.monotonic()
            results += checker.part(programs)
            say(f"{part}: {time.monotonic() - part_start:.0f} s")
    report(results)
    keep_unexplained(results, build.BUILD / "unexplained.txt")
    if options.table:
        machine = f"{device.describe()}, {time.strftime('%Y-%m-%d', time.gmtime())}"
        command = shlex.join(["scripts/gpu-check", *options.names])
        options.table.write_text(verdict.page(results, machine, command))
    if options.refresh and (refused or not done):
        print("gpu-check: not everything could be refreshed", file=sys.stderr)
        return 1
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
