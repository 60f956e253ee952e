# SPDX-License-Identifier: MIT
"""Runs batches of random programs in one of three ways and reads what they saw."""
from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
BARE, PRELOADED, SIMULATED = "bare", "preloaded", "simulated"
GIB = 1 << 30
# Seconds that one program may take before it counts as one that hangs; most take less than a tenth of one.
LIMIT_SECONDS = 6
# A process ends its last program by that limit. After so many seconds more it is killed.
EXIT_SECONDS = 4
HANGS_MAX = 4
STARTS_MAX = 30
# Of the batches: in so many, requests of less than a page share pages of the library's.
SMALL_SHARE = 0.7


# Ends that the driver alone brings about now and then, bare too.
DRIVER_ENDS = ("HANG", "DRIVER-CRASH")


class BuildError(Exception):
    """What could not be built, and what the tool said."""


@dataclass
class Sight:
    """What a program saw: the answer of each step, and why it did not end and the process' last words, or nothing."""
    answers: List[str]
    end: str = ""
    said: str = ""

    def n_made(self) -> int:
        return sum(answer != "-1" for answer in self.answers)

    def is_explained(self) -> bool:
        """A rule of the table of differences ended it, or there was no bare run to keep step with."""
        return bool(self.end) and not self.end.isupper()

    def differs(self, other: Sight) -> Optional[str]:
        """Where the two part; None: they do not."""
        if self.end and other.end:
            return None
        for step, (one, two) in enumerate(zip(self.answers, other.answers)):
            if one != two:
                return f"at step {step + 1}: {one} and {two}"
        if self.end or other.end:
            step = min(len(self.answers), len(other.answers)) + 1
            return f"at step {step}: {self.end or 'it goes on'} and {other.end or 'it goes on'}"
        if len(self.answers) != len(other.answers):
            return "in length"
        return None


@dataclass
class Batch:
    """Programs with neighbouring numbers, and what they run under."""
    first: int
    n_programs: int
    campaign_seed: int
    extent_pages: int = 1
    slack_bytes: int = 0
    free_waits: bool = False
    steps: int = 150
    is_full: bool = False
    captures: bool = True
    serves_small: bool = False

    @staticmethod
    def draw(dice: random.Random, seed: int, n_programs: int, captures: bool, is_small: bool = False) -> Batch:
        return Batch(first=dice.randrange(1 << 40), n_programs=n_programs, campaign_seed=seed, captures=captures,
                     extent_pages=dice.choice([0, 0, 1, 4]), slack_bytes=dice.choice([0, 64 << 20, 256 << 20]),
                     free_waits=dice.random() < 0.15, steps=dice.choice([60, 150, 300]),
                     is_full=dice.random() < 0.2, serves_small=dice.random() < SMALL_SHARE or is_small)

    @staticmethod
    def of_file(path: Path) -> Batch:
        words = path.read_text().split()
        return Batch(first=0, n_programs=1, campaign_seed=0, extent_pages=int(words[words.index("extent-pages") + 1]),
                     slack_bytes=int(words[words.index("slack-bytes") + 1]),
                     free_waits=words[words.index("free-waits") + 1] == "1", is_full="full" in words,
                     serves_small="small" in words)

    def numbers(self) -> range:
        return range(self.first, self.first + self.n_programs)

    def describe(self) -> str:
        return f"campaign {self.campaign_seed}"

    def options(self) -> List[str]:
        flags = (["--free-waits"] * self.free_waits + ["--full"] * self.is_full + ["--captures"] * self.captures +
                 ["--small"] * self.serves_small)
        return ["--extent-pages", str(self.extent_pages), "--slack-bytes", str(self.slack_bytes),
                "--steps", str(self.steps)] + flags

    def environment(self) -> Dict[str, str]:
        waits = "1" if self.free_waits else "small" if self.serves_small else "0"
        return {"VPMM_EXTENT": str(self.extent_pages or "auto"), "VPMM_SLACK": str(self.slack_bytes),
                "VPMM_MIN_SIZE": "1" if self.serves_small else "page", "VPMM_FREE_SYNC": waits,
                "VPMM_LOG": "none", "VPMM_DUMP_SIGNAL": "none"}


def built(folder: Optional[Path]) -> Path:
    """Builds what is needed and says in which folder, unless one is given."""
    if folder is not None:
        return folder.resolve()
    for tool in ("gcc", "meson", "ninja"):
        if shutil.which(tool) is None:
            raise BuildError(f"no {tool}: install it")
    folder = ROOT / "build-search-gpu"
    if not (folder / "build.ninja").exists():
        call(["meson", "setup", str(folder), str(ROOT), "--buildtype=release", "-Dtests=disabled"])
    call(["ninja", "-C", str(folder), "libvpmm.so", "src/tools/sim/libcuda/libcuda.so.1",
          "test/search/search-batch"])
    return folder


def call(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")


@dataclass
class Ended:
    """What a process left behind: its lines, and the end of its words on standard error."""
    lines: List[str]
    said: str = ""


class Device:
    """The programs' driver: a GPU's, or the simulated one in its place. Several threads may use it."""

    def __init__(self, build: Path, is_simulated: bool) -> None:
        self.build = build
        self.is_simulated = is_simulated
        self.program = build / "test" / "search" / "search-batch"
        self.preloaded = build / "libvpmm.so"
        self.folder = build / "search"
        self.folder.mkdir(exist_ok=True)
        self.killed: Counter[str] = Counter()
        self.is_stopped = False
        self.processes: Set[subprocess.Popen[str]] = set()
        self.lock = threading.Lock()

    def flag(self) -> str:
        return " --sim" if self.is_simulated else ""

    def needs_all(self, tested: Batch) -> bool:
        """Whether nothing else may run on the device then. Each process has a simulated device to itself."""
        return tested.is_full and not self.is_simulated

    def is_over(self, until: float) -> bool:
        return self.is_stopped or time.monotonic() >= until

    def stop(self) -> None:
        """Kills what runs and starts nothing more."""
        with self.lock:
            self.is_stopped = True
            for process in self.processes:
                process.kill()

    def environment(self, tested: Batch, way: str) -> Dict[str, str]:
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("VPMM_") and name != "LD_PRELOAD"}
        # With fewer queues than streams, work of one stream would wait for another's.
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
        if way == SIMULATED or self.is_simulated:
            environment["LD_LIBRARY_PATH"] = str(self.build / "src" / "tools" / "sim" / "libcuda")
            environment.update({"VPMM_SIM_BYTES": str((2 if tested.is_full else 4) * GIB), "VPMM_SIM_HOST_THREAD": "0",
                                "VPMM_SIM_REUSE_HANDLES": "1", "VPMM_SIM_HANG_MS": str(60000)})
        if way == PRELOADED:
            environment["LD_PRELOAD"] = str(self.preloaded)
            environment.update(tested.environment())
        return environment

    def start(self, tested: Batch, way: str, arguments: Sequence[str], until: float, bare: str = "") -> Ended:
        """Runs the process, which begins no program after that time. `bare`: the lines that it keeps step with."""
        settle_ms = "1" if way == SIMULATED or self.is_simulated else "20"
        with tempfile.TemporaryDirectory() as name:
            out, known = Path(name) / "out", Path(name) / "bare"
            command = [str(self.program), "--out", str(out), "--settle-ms", settle_ms, "--limit", str(LIMIT_SECONDS)]
            if self.needs_all(tested) and way != SIMULATED:
                command.append("--ballast")
            if bare:
                known.write_text(bare)
                command += ["--bare", str(known)]
            if until < math.inf:
                # Rounded up: a process that ran out of time leaves none for another.
                command += ["--seconds", f"{max(until - time.monotonic(), 0) + 0.001:.3f}"]
            status, said = self.status_of(command + tested.options() + list(arguments), tested, way, until)
            text = out.read_text() if out.exists() else ""
        # A process that was killed may have written a part of its last line.
        lines = text[:text.rfind("\n") + 1].splitlines()
        if status not in (None, 0, 3, 4):
            lines.append(f"? 0 END-{status}")
        return Ended(lines, said[-2000:])

    def status_of(self, command: Sequence[str], tested: Batch, way: str, until: float) -> Tuple[Optional[int], str]:
        """How the process ended, and its words on standard error. None: it did not end by itself."""
        with self.lock:
            if self.is_stopped:
                return None, ""
            # Signals that a terminal sends to its whole group are for the campaign alone.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       env=self.environment(tested, way), start_new_session=True)
            self.processes.add(process)
        patience = max(until - time.monotonic(), 0) + LIMIT_SECONDS + EXIT_SECONDS
        try:
            said = process.communicate(timeout=patience if until < math.inf else None)[1]
            return None if self.is_stopped else process.returncode, said
        except subprocess.TimeoutExpired:
            process.kill()
            with self.lock:
                self.killed[way] += 1
            # One that the kernel does not let go is left behind.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            return None, ""
        finally:
            with self.lock:
                self.processes.discard(process)

    def run(self, tested: Batch, way: str, until: float = math.inf,
            bare: Optional[Dict[int, Sight]] = None) -> Dict[int, Sight]:
        """What each program of the batch saw, or as many as there was time for. `bare`: on a full device, what it
        keeps step with."""
        sights: Dict[int, Sight] = {}
        first, n_hangs, n_starts = tested.first, 0, 0
        end = tested.first + tested.n_programs
        while first < end and n_hangs < HANGS_MAX and n_starts < STARTS_MAX and not self.is_over(until):
            arguments = ["--seed", str(first), "--programs", str(end - first)]
            known = "" if bare is None else lines_of((number, bare.get(number)) for number in range(first, end))
            ended = self.start(tested, way, arguments, until, known)
            for line in ended.lines:
                sights[first] = sight_of(line)
                n_hangs += sights[first].end == "HANG"
                first += 1
            if ended.lines and sights[first - 1].end:
                sights[first - 1].said = ended.said.strip().rpartition("\n")[2]
            n_starts += 1
        return sights

    def replay(self, tested: Batch, way: str, programs: Sequence[str], until: float,
               bare: Sequence[Sight] = ()) -> List[Sight]:
        """What the programs saw, run one after the other in one process; fewer when the time is over."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / str(i) for i in range(len(programs))]
            for path, program in zip(paths, programs):
                path.write_text(program)
            arguments = ["--replay"] + [str(path) for path in paths]
            ended = self.start(tested, way, arguments, until, lines_of(enumerate(bare)))
        if not ended.lines and not self.is_over(until):
            raise BuildError(f"a program could not be replayed: {ended.said}")
        return [sight_of(line) for line in ended.lines]

    def differs(self, tested: Batch, programs: Sequence[str], way: str, until: float = math.inf) -> Optional[str]:
        """Where bare and that way part in the last of the programs, or None, also when the time is over."""
        bare = self.replay(tested, BARE, programs, until)
        if len(bare) < len(programs) or self.is_over(until):
            return None
        other = self.replay(tested, way, programs, until, bare if tested.is_full else ())
        if len(bare) != len(other) or other[-1].is_explained():
            return None
        return bare[-1].differs(other[-1])

    def program_text(self, tested: Batch, number: int) -> str:
        return subprocess.run([str(self.program), "--print", "--seed", str(number)] + tested.options(),
                              stdout=subprocess.PIPE, text=True, check=True).stdout


def lines_of(bare: Iterable[Tuple[int, Optional[Sight]]]) -> str:
    """What was seen bare, for a process that keeps step with it."""
    return "".join(line_of(number, sight) for number, sight in bare)


def line_of(number: int, sight: Optional[Sight]) -> str:
    """As search-batch writes it; only a program that ended is worth keeping step with."""
    if sight is None or sight.end:
        return "-\n"
    return f"{number} {len(sight.answers)} {' '.join(sight.answers)}\n"


def sight_of(line: str) -> Sight:
    words = line.split()
    end = words[2] if len(words) > 2 and words[2][:1].isalpha() else ""
    return Sight(words[3:-1] if end else words[2:], end)
