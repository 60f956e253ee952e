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


PAGE_BYTES = 2 << 20


def counts_of(lines: Iterable[str]) -> Dict[str, int]:
    """What a clean trace holds: all mallocs, those of a page and more as the page of the traces counts them, and work."""
    large: Dict[str, int] = {}  # what is live
    marks: Counter = Counter()
    sizes, streams, live, peak, n_sync, us = [], set(), 0, 0, 0, 0
    for line in lines:
        words = line.split(",")
        marks[words[0]] += 1
        streams.add(words[STREAM[words[0]]])
        if words[0] == "A" and int(words[2]) >= PAGE_BYTES:
            sizes.append(int(words[2]))
            large[words[1]] = sizes[-1]
            n_sync += words[5] == "s"
            live += sizes[-1]
            peak = max(peak, live)
        elif words[0] == "F":
            live -= large.pop(words[1], 0)
        elif words[0] == "K":
            us += int(words[3])
    return {"mallocs": marks["A"], "large": len(sizes), "large by cudaMalloc": n_sync, "sizes": len(set(sizes)),
            "bytes at the peak": peak, "streams": len(streams), "works": marks["K"], "us of work": us, "records": marks["E"],
            "waits": marks["W"]}


def pack(raw: Path, made_path: Path) -> Dict[str, int]:
    """Writes the trace of a raw recording, the same bytes for the same recording; what it holds."""
    with raw.open() as file:
        lines = list(clean(file))
    made_path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0))
    return counts_of(lines)
