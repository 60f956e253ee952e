# SPDX-License-Identifier: MIT
"""Benchmarks: programs run for every rival in turn, bare and preloaded, on a GPU.

Ends with 0 when every run ended well, 1 when one did not or there is no GPU, 2 for wrong arguments or a failed build."""
from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Optional, Sequence

import made
import build
import device
import page
import recording
import records
import session
import ten
import works

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCS = ROOT / "docs"
KEPT = HERE / "results"
EPILOG = """\
scripts/bench plot [CSV...]       draws docs/bench/*.svg
scripts/bench table [CSV...]      writes docs/BENCHMARKS.md; without a CSV, both take all of test/bench/results
scripts/bench record NAME...      records a trace of a program: %s
scripts/bench record --all-new    records the ten programs half of which nobody tunes on
scripts/bench --sim [ARGUMENT...] replays the traces on the simulated device, without a GPU
parts: %s; PART/NAME selects single works"""
NOT_RECORDED = "not recorded yet: {}; on a GPU, scripts/bench record --all-new --out test/traces records all ten programs"


def say(text: str) -> None:
    print(text, flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG % (", ".join(recording.TARGETS), ", ".join(works.parts())))
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part (default: all)")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each program for each rival (%(default)s)")
    parser.add_argument("--out", type=Path, default=made.FOLDER / "out", metavar="DIR",
                        help="where results.csv is; what it already has is not run again (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="begin a new results.csv")
    parser.add_argument("--library", dest="shared_library", type=Path, metavar="FILE",
                        help="measure this library instead of building one")
    parser.add_argument("--commit", help="to be noted; git is asked otherwise")
    parser.add_argument("--part-limit", type=float, default=works.PART_LIMIT_S, metavar="S",
                        help="the time of all runs of a part (%(default)s)")
    parser.add_argument("--limit", type=float, default=1e9, metavar="S", help="the time of all runs")
    parser.add_argument("--gib", metavar="N", help=f"of weights in the part of that name ({works.GIB_DEFAULT})")
    parser.add_argument("--tuned", action="store_true",
                        help="of the traces, those of the five programs that the pool may be tuned on")
    parser.add_argument("--untouched", action="store_true",
                        help="of the traces, those of the five programs that are kept back; never replayed unless asked for")
    parser.add_argument("--list", action="store_true", help="name the works, and run nothing")
    parser.add_argument("--build-only", action="store_true", help="build everything, and run nothing")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> List[str]:
    """The names given; where halves of the ten programs are asked for, their parts in the place of all traces."""
    parts = [part for half, parts in ten.HALVES.items() if getattr(options, half) for part in parts]
    return [*(name for name in options.names if name != "traces"), *parts] if parts else options.names


def commit() -> str:
    """The short name of the commit, and whether the tree differs from it; "unknown" where git cannot say."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def here_and_now(options: argparse.Namespace, arguments: Sequence[str]) -> records.Session:
    gpu, _, driver = device.describe().partition(", driver ")
    return records.Session(time.strftime("%Y-%m-%d", time.gmtime()), options.commit or commit(), os.uname().release,
                           driver, gpu, shlex.join(["scripts/bench", *arguments]))


def list_works(selected: Sequence[works.Work]) -> None:
    for work in selected:
        print(f"{work.full_name}: {', '.join(work.rivals)}")


def prepare(selected: Sequence[works.Work], library: Optional[Path], more: Sequence[str] = ()) -> Path:
    """Builds, `more` CUDA programs as well; one that cannot be built is told, and fails when it is run. Raises
    build.BuildError, OSError."""
    start = time.monotonic()
    made_library = library.resolve(strict=True) if library else build.shared_library()
    for trouble in made.programs([*session.sources(selected), *more]):
        say(f"not built: {trouble}")
    made.unpack(selected)
    say(f"built in {time.monotonic() - start:.0f} s: {made_library}")
    return made_library


def measure(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.gib:
        os.environ[works.GIB_VARIABLE] = options.gib
    try:
        selected = works.select(chosen(options))
        if options.list:
            list_works(selected)
            return 0
        lacking = works.unrecorded(selected)
        if lacking:
            raise ValueError(NOT_RECORDED.format(", ".join(lacking)))
        if not options.build_only and device.count() == 0:
            print("bench: no GPU here (nvidia-smi names none); without one there is scripts/bench --sim", file=sys.stderr)
            return 1
        library = prepare(selected, options.shared_library, recording.sources(recording.TARGETS) if options.build_only else ())
        if options.build_only:
            say(f"built: {made.recorder()}")
            return 0
        options.out.mkdir(parents=True, exist_ok=True)
        results = options.out / "results.csv"
        if options.fresh:
            results.unlink(missing_ok=True)
        runner = session.Runner(library, results, here_and_now(options, arguments), say)
    except (ValueError, OSError, build.BuildError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    # Whoever ends it by a signal finds what was measured until then.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        runner.all(selected, options.runs, options.part_limit, options.limit)
    except KeyboardInterrupt:
        say("bench: stopped; the same command goes on")
    say("\n" + page.text(runner.results, selected))
    say(f"all figures: {results}")
    return 1 if runner.results.failures() else 0


def kept(names: Sequence[str]) -> List[Path]:
    return [Path(name) for name in names] or sorted(KEPT.glob("*.csv"))


def write_table(names: Sequence[str]) -> int:
    import plots
    sessions, found = records.read(kept(names))
    results = records.Results(found)
    (DOCS / "BENCHMARKS.md").write_text(page.markdown(sessions, results, plots.names(results)))
    return 0


def draw(names: Sequence[str]) -> int:
    import plots
    _, found = records.read(kept(names))
    for path in plots.draw(records.Results(found), DOCS / "bench"):
        say(str(path))
    return 0


def main(arguments: List[str]) -> int:
    if arguments[:1] == ["--sim"]:
        os.execv(sys.executable, [sys.executable, "-B", str(HERE / "sim.py"), *arguments[1:]])
    commands = {"table": write_table, "plot": draw, "record": recording.main}
    if arguments and arguments[0] in commands:
        try:
            return commands[arguments[0]](arguments[1:])
        except (ValueError, OSError, ImportError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2
    return measure(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
