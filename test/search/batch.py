# SPDX-License-Identifier: MIT
"""Runs batches of random programs in one of three ways and reads what they saw."""
from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
BARE, PRELOADED, SIMULATED = "bare", "preloaded", "simulated"
GIB = 1 << 30
# Seconds that one program may take before it counts as one that hangs.
LIMIT_SECONDS = 15
HANGS_MAX = 4
STARTS_MAX = 30


class BuildError(Exception):
    """What could not be built, and what the tool said."""


@dataclass
class Sight:
    """What a program saw: the answer of each step, and why it did not end, or nothing."""
    answers: List[str]
    end: str = ""

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

    @staticmethod
    def draw(dice: random.Random, seed: int, n_programs: int) -> Batch:
        return Batch(first=dice.randrange(1 << 40), n_programs=n_programs, campaign_seed=seed,
                     extent_pages=dice.choice([0, 0, 1, 4]), slack_bytes=dice.choice([0, 64 << 20, 256 << 20]),
                     free_waits=dice.random() < 0.15, steps=dice.choice([60, 150, 300]),
                     is_full=dice.random() < 0.2)

    @staticmethod
    def of_file(path: Path) -> Batch:
        words = path.read_text().split()
        return Batch(first=0, n_programs=1, campaign_seed=0, extent_pages=int(words[words.index("extent-pages") + 1]),
                     slack_bytes=int(words[words.index("slack-bytes") + 1]),
                     free_waits=words[words.index("free-waits") + 1] == "1", is_full="full" in words)

    def numbers(self) -> range:
        return range(self.first, self.first + self.n_programs)

    def describe(self) -> str:
        return f"campaign {self.campaign_seed}"

    def options(self) -> List[str]:
        flags = ["--free-waits"] * self.free_waits + ["--full"] * self.is_full
        return ["--extent-pages", str(self.extent_pages), "--slack-bytes", str(self.slack_bytes),
                "--steps", str(self.steps)] + flags

    def environment(self) -> Dict[str, str]:
        return {"VPMM_EXTENT": str(self.extent_pages or "auto"), "VPMM_SLACK": str(self.slack_bytes),
                "VPMM_FREE_SYNC": str(int(self.free_waits)), "VPMM_LOG": "none", "VPMM_DUMP_SIGNAL": "none"}


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
    call(["ninja", "-C", str(folder), "src/preload/libvpmm.so", "src/sim/libcuda/libcuda.so.1",
          "test/search/search-batch"])
    return folder


def call(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")


class Device:
    """The programs' driver: a GPU's, or the simulated one in its place."""

    def __init__(self, build: Path, is_simulated: bool) -> None:
        self.build = build
        self.is_simulated = is_simulated
        self.program = build / "test" / "search" / "search-batch"
        self.library = build / "src" / "preload" / "libvpmm.so"
        self.folder = build / "search"
        self.folder.mkdir(exist_ok=True)

    def flag(self) -> str:
        return " --sim" if self.is_simulated else ""

    def environment(self, tested: Batch, way: str) -> Dict[str, str]:
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("VPMM_") and name != "LD_PRELOAD"}
        # With fewer queues than streams, work of one stream would wait for another's.
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
        if way == SIMULATED or self.is_simulated:
            environment["LD_LIBRARY_PATH"] = str(self.build / "src" / "sim" / "libcuda")
            environment.update({"VPMM_SIM_BYTES": str((2 if tested.is_full else 4) * GIB), "VPMM_SIM_HOST_THREAD": "0",
                                "VPMM_SIM_REUSE_HANDLES": "1", "VPMM_SIM_HANG_MS": str(60000)})
        if way == PRELOADED:
            environment["LD_PRELOAD"] = str(self.library)
            environment.update(tested.environment())
        return environment

    def start(self, tested: Batch, way: str, arguments: Sequence[str]) -> List[str]:
        """Runs the process and returns the lines that it wrote."""
        settle_ms = "1" if way == SIMULATED or self.is_simulated else "20"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            command = [str(self.program), "--out", str(out), "--settle-ms", settle_ms, "--limit", str(LIMIT_SECONDS)]
            if tested.is_full and way != SIMULATED and not self.is_simulated:
                command.append("--ballast")
            done = subprocess.run(command + tested.options() + list(arguments), stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, env=self.environment(tested, way), check=False)
            lines = out.read_text().splitlines() if out.exists() else []
        if done.returncode not in (0, 3, 4):
            lines.append(f"? 0 END-{done.returncode}")
        self.said = done.stderr[-2000:]
        return lines

    def run(self, tested: Batch, way: str, bare: Optional[Dict[int, Sight]] = None) -> Dict[int, Sight]:
        """What each program of the batch saw. `bare`: on a full device, what it keeps step with."""
        sights: Dict[int, Sight] = {}
        first, n_hangs, n_starts = tested.first, 0, 0
        end = tested.first + tested.n_programs
        while first < end and n_hangs < HANGS_MAX and n_starts < STARTS_MAX:
            arguments = ["--seed", str(first), "--programs", str(end - first)]
            if bare is not None:
                arguments += self.keep_step((number, bare.get(number)) for number in range(first, end))
            lines = self.start(tested, way, arguments)
            for line in lines:
                sights[first] = sight_of(line)
                n_hangs += sights[first].end == "HANG"
                first += 1
            n_starts += 1
        return sights

    def replay(self, tested: Batch, way: str, programs: Sequence[str], bare: Sequence[Sight] = ()) -> List[Sight]:
        """What the programs saw, run one after the other in one process."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / str(i) for i in range(len(programs))]
            for path, program in zip(paths, programs):
                path.write_text(program)
            arguments = self.keep_step(enumerate(bare)) if bare else []
            lines = self.start(tested, way, arguments + ["--replay"] + [str(path) for path in paths])
        if not lines:
            raise BuildError(f"a program could not be replayed: {self.said}")
        return [sight_of(line) for line in lines]

    def differs(self, tested: Batch, programs: Sequence[str], way: str) -> Optional[str]:
        """Where bare and that way part in the last of the programs, or None."""
        bare = self.replay(tested, BARE, programs)
        other = self.replay(tested, way, programs, bare if tested.is_full else ())
        if len(bare) < len(programs) or len(bare) != len(other) or other[-1].is_explained():
            return None
        return bare[-1].differs(other[-1])

    def keep_step(self, bare: Iterable[Tuple[int, Optional[Sight]]]) -> List[str]:
        """Options with which a process follows what was seen bare."""
        known = self.folder / "bare"
        known.write_text("".join(line_of(number, sight) for number, sight in bare))
        return ["--bare", str(known)]

    def program_text(self, tested: Batch, number: int) -> str:
        return subprocess.run([str(self.program), "--print", "--seed", str(number)] + tested.options(),
                              stdout=subprocess.PIPE, text=True, check=True).stdout


def line_of(number: int, sight: Optional[Sight]) -> str:
    """As search-batch writes it; only a program that ended is worth keeping step with."""
    if sight is None or sight.end:
        return "-\n"
    return f"{number} {len(sight.answers)} {' '.join(sight.answers)}\n"


def sight_of(line: str) -> Sight:
    words = line.split()
    end = words[2] if len(words) > 2 and words[2][:1].isalpha() else ""
    return Sight(words[3:-1] if end else words[2:], end)
