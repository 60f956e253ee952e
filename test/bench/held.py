# SPDX-License-Identifier: MIT
"""What a program makes the device hold, seen from outside: the watcher's client."""
from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional, Tuple

WATCHER = Path(__file__).resolve().parent / "watcher.py"
NVML = "libnvidia-ml.so.1"
ANSWER_S = 60.0
SETTLE_LOOKS, SETTLE_S = 200, 0.005


class Unwatched(Exception):
    """The watcher does not answer; the text says why."""


def device_name() -> str:
    """Of the device that a CUDA program uses first, as NVML knows it."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return first or "0"


class Watch:
    """A running watcher. Closed by close()."""

    def __init__(self, library: str = NVML, device: Optional[str] = None) -> None:
        env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [sys.executable, "-B", str(WATCHER), library, device or device_name()], env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(self) -> Tuple[int, int]:
        """Bytes used now, and the most since the last answer. Raises Unwatched."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
        except OSError:
            pass
        ready, _, _ = select.select([process.stdout], [], [], ANSWER_S)
        words = process.stdout.readline().split() if ready else []
        if len(words) != 3:
            self._process.kill()
            said = process.communicate()[1].decode(errors="replace").splitlines()
            raise Unwatched(said[-1] if said else "the watcher does not answer")
        return int(words[0]), int(words[1])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass


class Held:
    """The most that one run held above what was used before it. Begun by its making, once the device has taken back what
    an earlier program held."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._peak_bytes = 0
        before, _ = watch.ask()
        for _ in range(SETTLE_LOOKS):
            time.sleep(SETTLE_S)
            self.idle_bytes, _ = watch.ask()
            if self.idle_bytes >= before:
                break
            before = self.idle_bytes

    def look(self) -> int:
        """At a moment that matters: bytes above idle now."""
        now, peak = self._watch.ask()
        self._peak_bytes = max(self._peak_bytes, peak)
        return now - self.idle_bytes

    def peak_bytes(self) -> int:
        """Above idle, until now."""
        self.look()
        return self._peak_bytes - self.idle_bytes
