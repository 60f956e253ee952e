# SPDX-License-Identifier: MIT
"""A soak: mixed ordinary work for some minutes in one process under the library. What it holds is sampled
after each round, when idle and again when asked to give back what it keeps; that last must be at the end what it was at the
beginning.

Ends with 0 when it is, 1 when not, 2 for wrong arguments or a failed build, 77 without a GPU.
"""
from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import build
import device
import verdict
from catalogue import STATIC, Program
from counters import Counters, ask_dump, dump_figures, live_bytes, read_counters
from process import Figures, Outcome, run

PROGRAM = Program("soak", "soak", "soak", cudart=STATIC)
FOLDER = build.BUILD / "gpu-soak"
WARM_UP_ROUNDS = 10
JUDGED_ROUNDS_LEAST = 8
GRACE_S = 180.0
MIB = 1 << 20
SUMS = ("held", "live", "reusable", "zombie", "busy", "quarantined")
COUNTS = ("extents", "mappings")

Sample = Dict[str, float]


@dataclass(frozen=True)
class Rule:
    """What must hold of a figure: by how much the median of the last quarter of all rounds may exceed that of the
    first, by how much it may fall below, and its value in every round. None: anything. `floor`: the least of each
    quarter is compared instead, for what goes up and down by itself; a leak raises that, too."""

    figure: str
    text: str
    more: Optional[float] = None
    less: Optional[float] = None
    always: Optional[float] = None
    floor: bool = False


# Figures of the library are in MiB; "idle" is before the request that makes it give back what it keeps.
HOST_RULES = [
    Rule("used_mib", "not above", more=0.0),
    # Anonymous memory is CUDA's: it steps by 7 MiB, and grows by as much as 1 MiB in two minutes without the library, too.
    Rule("rss_kib", "floor less than 4 MiB above", more=4095.0, floor=True),
    # Shared memory is the library's metadata.
    Rule("rss_shmem_kib", "less than 1 MiB above", more=1023.0),
    Rule("fds", "equal", more=0.0, less=0.0),
    Rule("threads", "equal", more=0.0, less=0.0),
    Rule("mappings_of_host", "shown only"),
]
POOL_RULES = [
    *(Rule(f"{name}_mib", "0 in every round", always=0.0)
      for name in SUMS),
    *(Rule(name, "0 in every round", always=0.0) for name in ("extents", "mappings", "wrong_sums")),
    *(Rule(f"idle_{name}_mib", "0 in every round", always=0.0) for name in ("live", "busy", "quarantined")),
    Rule("idle_wrong_sums", "0 in every round", always=0.0),
    *(Rule(name, "shown only") for name in ("idle_held_mib", "idle_zombie_mib", "idle_extents")),
]


# ---- judgement ----

def quarters(rule: Rule, values: Sequence[float]) -> List[float]:
    """What stands for the first and for the last quarter."""
    n = max(1, len(values) // 4)
    of: Callable[[Sequence[float]], float] = min if rule.floor else statistics.median
    return [of(values[:n]), of(values[-n:])]


def breach(rule: Rule, values: Sequence[float]) -> str:
    """What a figure does that it must not; empty when it keeps the rule."""
    first, last = quarters(rule, values)
    if rule.more is not None and last - first > rule.more:
        return f"{rule.figure} grows from {verdict.number(first)} to {verdict.number(last)}"
    if rule.less is not None and first - last > rule.less:
        return f"{rule.figure} falls from {verdict.number(first)} to {verdict.number(last)}"
    wrong = [i for i, value in enumerate(values) if rule.always is not None and value != rule.always]
    if wrong:
        return (f"{rule.figure} is not {verdict.number(rule.always)} in {len(wrong)} of {len(values)} rounds, first "
                f"{verdict.number(values[wrong[0]])} in round {wrong[0] + 1} after the warm-up")
    return ""


def judge(samples: Sequence[Sample], rules: Sequence[Rule]) -> List[str]:
    """What is wrong with the samples, a line each."""
    judged = samples[WARM_UP_ROUNDS:]
    if len(judged) < JUDGED_ROUNDS_LEAST:
        return [f"{len(samples)} rounds are too few: {WARM_UP_ROUNDS} to warm up and {JUDGED_ROUNDS_LEAST} to judge"]
    found = []
    for rule in rules:
        values = [sample[rule.figure] for sample in judged if rule.figure in sample]
        if len(values) < len(judged):
            found.append(f"{rule.figure} is missing in {len(judged) - len(values)} rounds")
        elif text := breach(rule, values):
            found.append(text)
    return found


def table(samples: Sequence[Sample], rules: Sequence[Rule]) -> List[List[str]]:
    judged = samples[WARM_UP_ROUNDS:]
    rows = []
    for rule in rules:
        values = [sample[rule.figure] for sample in judged if rule.figure in sample]
        if values:
            first, last = quarters(rule, values)
            kept = "" if rule.text == "shown only" else "NO" if breach(rule, values) else "yes"
            rows.append([rule.figure, verdict.number(first), verdict.number(last), verdict.number(min(values)),
                         verdict.number(max(values)), rule.text, kept])
    return rows


def judge_run(outcome: Outcome, counters: Counters, preloaded: bool) -> List[str]:
    """What is wrong with the run as a whole."""
    found = list(counters.complaints)
    if outcome.trouble:
        found.append(outcome.trouble)
    if outcome.hung:
        found.append(f"HANGS (ended after {outcome.seconds:.0f} s)")
    elif outcome.code != 0:
        found.append(f"ends with {outcome.code}")
    if not preloaded:
        return found
    if not counters.found:
        found.append("the library left no statistics")
    elif counters.served == 0:
        found.append("no request was served by the pool")
    elif counters.figures.get("moved_bytes", 0) == 0:
        found.append("no page was moved")
    return found


# ---- sampling ----

class Sampler:
    """Looks at the program at its marks: "idle" begins a sample and "trimmed" completes it."""

    def __init__(self, folder: Path, preloaded: bool, seconds: float) -> None:
        self.samples: List[Sample] = []
        self._dump_path = folder / "dump.json"
        self._preloaded = preloaded
        self._start = time.monotonic()
        self._seconds = seconds
        self._said = self._start
        self._idle: Sample = {}

    def look(self, mark: str, pid: int, _before: int) -> Figures:
        figures = self._pool(pid) if self._preloaded else {}
        if mark == "idle":
            self._idle = {f"idle_{name}": value for name, value in figures.items()}
            return {}
        sample = {"round": float(len(self.samples) + 1), "seconds": time.monotonic() - self._start,
                  "used_mib": device.used_mib(), **host_figures(pid), **figures, **self._idle}
        self.samples.append(sample)
        if time.monotonic() - self._said > 30:
            self._said = time.monotonic()
            print(f"  round {len(self.samples)}, {sample['seconds']:.0f} of {self._seconds:.0f} s: "
                  f"device {sample['used_mib']:.0f} MiB, host {sample['rss_kib']:.0f} KiB", flush=True)
        return {}

    def _pool(self, pid: int) -> Sample:
        self._dump_path.unlink(missing_ok=True)
        return pool_figures(ask_dump(pid, 1, self._dump_path))


def pool_figures(dump: Any) -> Sample:
    """The figures of all devices together. Raises ValueError for a dump of no pool."""
    if not dump["devices"]:
        raise ValueError("the dump knows no device with a pool")
    figures = {f"{name}_mib": sum(entry[f"{name}_bytes"] for entry in dump["devices"]) / MIB for name in SUMS}
    figures["live_mib"] = sum(map(live_bytes, dump["devices"])) / MIB
    figures.update({name: float(sum(entry[name] for entry in dump["devices"])) for name in COUNTS})
    figures["wrong_sums"] = dump_figures(dump)["wrong_sums"]
    return figures


def host_figures(pid: int) -> Sample:
    """What a process takes of the host."""
    proc = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
    if missing := {"VmRSS", "RssShmem", "Threads"} - set(status):
        raise ValueError(f"{proc}/status has no {' and no '.join(sorted(missing))}")
    return {
        "rss_kib": float(status["VmRSS"].split()[0]),
        "rss_shmem_kib": float(status["RssShmem"].split()[0]),
        "threads": float(status["Threads"]),
        "fds": float(len(os.listdir(proc / "fd"))),
        "mappings_of_host": float(len((proc / "maps").read_text().splitlines())),
    }


# ---- the command ----

def parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu-soak", description=(
        "Mixed ordinary work under the library; what it holds when idle must end where it began. Samples go to "
        f"{FOLDER.relative_to(build.ROOT)}/samples.csv."))
    parser.add_argument("minutes", nargs="?", type=float, default=10.0, metavar="MINUTES",
                        help="how long (default: 10)")
    parser.add_argument("--bare", action="store_true", help="without the library: what CUDA itself does to the figures")
    parser.add_argument("--library", dest="shared_library", type=Path, metavar="FILE",
                        help="use this library instead of building one")
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error("MINUTES must be above 0")
    return options


def write_csv(samples: Sequence[Sample], path: Path) -> None:
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(samples)


def soak(library: Path, minutes: float, preloaded: bool) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    env = dict(os.environ)
    if preloaded:
        env.update(LD_PRELOAD=str(library), VPMM_STATS=f"{FOLDER}/stats.%p.json", VPMM_DUMP=f"{FOLDER}/dump.json",
                   VPMM_DUMP_MAX="1T", VPMM_DUMP_FORMAT="json")
    sampler = Sampler(FOLDER, preloaded, minutes * 60)
    outcome = run([str(build.binary(PROGRAM)), str(minutes * 60)], env, minutes * 60 + GRACE_S, FOLDER, sampler.look)
    write_csv(sampler.samples, FOLDER / "samples.csv")
    counters = read_counters(FOLDER)
    return report(sampler.samples, outcome, counters, preloaded)


def report(samples: Sequence[Sample], outcome: Outcome, counters: Counters, preloaded: bool) -> int:
    rules = [*HOST_RULES, *(POOL_RULES if preloaded else [])]
    wrong = judge_run(outcome, counters, preloaded) + judge(samples, rules)
    heads = ["figure", "first quarter", "last quarter", "least", "most", "rule", "kept"]
    print(f"\n{len(samples)} rounds in {outcome.seconds:.0f} s; quarters after {WARM_UP_ROUNDS} rounds of warm-up")
    print(verdict.as_text(heads, table(samples, rules)))
    if preloaded:
        print(f"served by the pool: {counters.served}; passed through: {counters.passed_text() or 'none'}")
        print(", ".join(f"{key} {verdict.number(value)}" for key, value in counters.figures.items() if value))
    if wrong:
        last_words = [line for line in outcome.output.splitlines() if not line.startswith("@")][-10:]
        for line in [*last_words, *outcome.errors.splitlines()[-10:]]:
            print(f"  | {line}")
    for line in wrong:
        print(f"WRONG: {line}")
    if any("rss_kib" in line or "used_mib" in line for line in wrong) and preloaded:
        print("scripts/gpu-soak --bare shows what CUDA itself does to these figures")
    print("not passed" if wrong else "passed")
    return 1 if wrong else 0


def main(arguments: List[str]) -> int:
    options = parse(arguments)
    try:
        library = options.shared_library.resolve(strict=True) if options.shared_library else build.shared_library()
        build.programs([PROGRAM])
    except (OSError, build.BuildError) as error:
        print(f"gpu-soak: {error}", file=sys.stderr)
        return 2
    if device.count() == 0:
        print("gpu-soak: no GPU here (nvidia-smi names none)", file=sys.stderr)
        return 77
    print(f"{device.describe()}; {options.minutes:.1f} minutes{', bare' if options.bare else ''}", flush=True)
    return soak(library, options.minutes, not options.bare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
