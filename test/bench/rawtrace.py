# SPDX-License-Identifier: MIT
"""What the recorder wrote, made into a trace as test/traces/README.md has it."""
from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Dict, Iterable, Iterator

# Where in a line, by its mark, a stream, an address or event, and the time stand.
STREAM = {"A": 3, "F": 3, "K": 1, "E": 2, "W": 2}
OBJECT = {"A": 1, "F": 1, "E": 1, "W": 1}
TIME = {"A": 4, "F": 4, "K": 2, "E": 3, "W": 3}
# Stream handles that are no objects: legacy, whose other name is 0, and per-thread.
LEGACY, PER_THREAD = "1", "2"


def clean(lines: Iterable[str]) -> Iterator[str]:
    """A raw recording as a trace: times from 0, streams and events by small numbers in the order of appearance, without
    the frees of what the recorder did not see allocated."""
    streams: Dict[str, str] = {"0": "0", LEGACY: "0", PER_THREAD: PER_THREAD}
    events: Dict[str, str] = {}
    live, begun = set(), -1
    for line in lines:
        words = line.rstrip("\n").split(",")
        mark = words[0]
        if mark not in STREAM:
            raise ValueError(f"not a line of a recording: {line.strip()}")
        if mark == "A":
            live.add(words[1])
        elif mark == "F":
            if words[1] not in live:
                continue
            live.remove(words[1])
        elif mark in OBJECT:
            words[1] = events.setdefault(words[1], format(len(events) + 1, "x"))
        words[STREAM[mark]] = streams.setdefault(words[STREAM[mark]], format(len(streams) + 1, "x"))
        begun = int(words[TIME[mark]]) if begun < 0 else begun
        words[TIME[mark]] = str(int(words[TIME[mark]]) - begun)
        yield ",".join(words)


def pack(raw: Path, made_path: Path) -> Dict[str, int]:
    """Writes the trace of a raw recording, the same bytes for the same recording; how many lines it has of each kind."""
    with raw.open() as file:
        text = [line + "\n" for line in clean(file)]
    made_path.write_bytes(gzip.compress("".join(text).encode(), mtime=0))
    return dict(sorted(Counter(line[0] for line in text).items()))
