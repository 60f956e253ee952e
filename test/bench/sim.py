#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays traces on the simulated device with the price list of an H200, and prints what the pool would cost and hold
beside what cudaMallocAsync was measured to: with its own choice of extents, and with one page an extent."""
import argparse
import csv
import datetime
import gzip
import json
import pathlib
import platform
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import loads  # noqa: E402
import split  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRACES = ROOT / "test" / "traces"
RIVALS = HERE / "cuda-h200.csv"
PASSES = 3
RUNS = 3
HEAD = ("load", "pool", "held/peak", "cold ms", "2nd ms", "3rd ms", "2nd own", "2nd owed", "p50 us", "p99 us", "max us",
        "last ms", "cold x", "2nd x", "last x")

LEGEND = """
ms: all mallocs and frees of a pass: the modelled price of their driver calls on an H200, and our own CPU time on this
machine, the best of three runs. 2nd own: the latter, of the second pass. 2nd owed: the modelled price of unmaps that
the second pass put off. p50, p99, max: of one call of the second pass. last: the cold pass's last malloc. x: ours over
cudaMallocAsync's. held/peak: the most of all passes, over requested bytes."""


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, cwd=ROOT, **options)


def build(folder):
    """The command of a release build."""
    folder = ROOT / folder
    quiet = {"stdout": subprocess.DEVNULL}
    if not (folder / "build.ninja").exists():
        headers = run(ROOT / "scripts" / "find-cuda-headers", capture_output=True).stdout.strip()
        run("meson", "setup", folder, ROOT, "-Dbuildtype=release", "-Dtests=disabled", f"-Dheaders_of_cuda={headers}",
            **quiet)
    run("ninja", "-C", folder, "vpmm", **quiet)
    return folder / "vpmm"


def known():
    """Every load: name to the function that returns its trace as bytes. No trace that is kept back is among them."""
    paths = [*sorted(TRACES.glob("*.csv.gz")), *sorted((TRACES / split.TUNED_FOLDER).glob("*.csv.gz"))]
    traces = {path.name.split(".")[0]: path for path in paths}
    found = {name: (lambda path=path: gzip.decompress(path.read_bytes())) for name, path in traces.items()}
    found.update({name: (lambda name=name: loads.make(name).encode()) for name in loads.LOADS})
    return found


def chosen(names):
    loads_by_name = known()
    for name in names or loads_by_name:
        path = pathlib.Path(name)
        if name in loads_by_name:
            yield name, loads_by_name[name]()
        elif path.is_file():
            data = path.read_bytes()
            yield path.name.split(".")[0], gzip.decompress(data) if path.suffix == ".gz" else data
        else:
            sys.exit(f"no load and no file is called {name}; known: {' '.join(loads_by_name)}")


def rivals():
    with open(RIVALS, encoding="utf-8") as file:
        return {row["load"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}


def replay_once(program, name, trace, options):
    """One row a pass."""
    command = [program, "replay", "--on", "sim", "--json", "--passes", str(PASSES), "--min-size", "2M", *options, "-"]
    result = subprocess.run(command, input=trace, stdout=subprocess.PIPE, check=False)
    if result.returncode:
        sys.exit(f"vpmm replay ended with status {result.returncode} on {name}")
    passes = json.loads(result.stdout)["replays"][0]["passes"]
    return [row_of(name, number, figures) for number, figures in enumerate(passes, 1)]


def row_of(name, number, figures):
    kinds = figures.pop("by_kind")
    return {"trace": name, "pass": number, **figures,
            **{f"{kind}_{key}": value for kind, values in kinds.items() for key, value in values.items()}}


def replay(program, name, trace, options):
    """Of several runs, which model the same, each pass of that in which this machine was least disturbed."""
    runs = [replay_once(program, name, trace, options) for _ in range(RUNS)]
    return [min(rows, key=milliseconds) for rows in zip(*runs)]


def milliseconds(row):
    return (int(row["driver_ns"]) + int(row["own_ns"])) / 1e6


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def measured(rival, column):
    return float(rival[column]) if rival and rival[column] else None


def of(value, base):
    return None if base is None else value / base


def line_of_cuda(name, rival):
    return (name, "cudaMallocAsync", number(measured(rival, "held_ratio"), 3), number(measured(rival, "cold_ms"), 1),
            number(measured(rival, "second_ms"), 1)) + ("",) * 6 + (number(measured(rival, "last_ms"), 1),)


def line_of_pool(pool, rows, rival):
    total = [milliseconds(row) for row in rows]
    held = max(float(row["held_ratio"]) for row in rows)
    second = rows[1]
    last = int(rows[0]["last_malloc_ns"]) / 1e6
    owed = (int(second["owed_ns"]) - int(rows[0]["owed_ns"])) / 1e6
    return ("", pool, number(held, 3), *(number(ms, 2) for ms in total), number(int(second["own_ns"]) / 1e6, 2), number(owed, 2),
            *(number(int(second[column]) / 1e3, 2) for column in ("p50_ns", "p99_ns", "max_ns")),
            number(last, 2), number(of(total[0], measured(rival, "cold_ms")), 2),
            number(of(total[1], measured(rival, "second_ms")), 2), number(of(last, measured(rival, "last_ms")), 2))


def show(line):
    print((f"{line[0]:<11} {line[1]:<15}" + "".join(f" {cell:>9}" for cell in line[2:])).rstrip(), flush=True)


def provenance():
    commit = run("git", "describe", "--always", "--dirty", capture_output=True).stdout.strip()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"kernel": platform.release(), "machine": platform.machine(), "commit": commit, "date": now}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{len(rows)} rows in {path}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench --sim", description=__doc__)
    parser.add_argument("loads", nargs="*", metavar="TRACE", help="a name or a file (all that are known)")
    parser.add_argument("--build", default="build-bench", help="folder of the release build")
    parser.add_argument("--csv", type=pathlib.Path, help="where all figures go (BUILD/sim.csv)")
    parser.add_argument("--no-pages", action="store_true", help="without the pool of one page an extent")
    parser.add_argument("--option", action="append", default=[], help="for vpmm replay, as in --option=--lag-us=100")
    arguments = parser.parse_args()
    program = build(arguments.build)
    where = provenance()
    pools = {"vpmm": []}
    if not arguments.no_pages:
        pools["vpmm, extent 1"] = ["--extent", "1"]
    cuda = rivals()
    table = []
    show(HEAD)
    for name, trace in chosen(arguments.loads):
        rival = cuda.get(name)
        show(line_of_cuda(name, rival))
        for pool, options in pools.items():
            rows = replay(program, name, trace, options + arguments.option)
            show(line_of_pool(pool, rows, rival))
            table += [{"pool": pool, **row, **where} for row in rows]
    print(LEGEND)
    write(arguments.csv or ROOT / arguments.build / "sim.csv", table)


if __name__ == "__main__":
    main()
