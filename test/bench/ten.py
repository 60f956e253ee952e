# SPDX-License-Identifier: MIT
"""The works and bars of the ten programs of split.py: requests of a page and more, and all requests."""
from __future__ import annotations

from typing import List

import split
from work import Bar, Limit, Work, at_most, is_within

PASSES = ("cold", "second")
# What a malloc may take in each pass.
SHORT_NS, LONGEST_NS = 250.0, 3e3
EVERY_SIZE = "1"  # the least request that is replayed


def _tight(rival: str) -> Bar:
    return Bar(rival, "held_ratio", "at most cudaMallocAsync's", (Limit(1, "async"),))


def _large(part: str, name: str) -> Work:
    """Requests of a page and more of one of the ten."""
    return Work(part, name, "replay", ("async", "pool"), trace=split.recording_of(name), limit_s=60.0, bars=(
        Bar("pool", "cold_total", "at most 0.6", (Limit(0.6, "async"),)), at_most("pool", "second_total", 3, "async"),
        *(is_within("pool", f"{turn}_malloc_p50", SHORT_NS, "0.25 us") for turn in PASSES),
        *(is_within("pool", f"{turn}_malloc_p99", LONGEST_NS, "3 us") for turn in PASSES),
        _tight("pool"), Bar("pool", "held_peak", "at most 1.05 of what is live", (Limit(1.05, "pool", "live_peak"),))))


def _every(part: str, name: str) -> Work:
    """All requests of one of the ten."""
    return Work(part, name, "replay", ("async", "pool"), (EVERY_SIZE,), trace=split.recording_of(name), limit_s=60.0, bars=(
        *(at_most("pool", f"{turn}_total", 3, "async") for turn in PASSES),
        *(is_within("pool", f"{turn}_malloc_p99", LONGEST_NS, "3 us") for turn in PASSES), _tight("pool")))


# What the ten programs' parts are called, by the half that they are of.
HALVES = {"tuned": ("tuned", "tuned-all"), "untouched": ("untouched", "untouched-all")}


def works() -> List[Work]:
    """The works of the ten programs, also where they are not recorded yet."""
    halves = ((HALVES["tuned"], split.TUNED), (HALVES["untouched"], split.UNTOUCHED))
    return [make(part, name) for parts_of, names in halves for make, part in zip((_large, _every), parts_of)
            for name in names]
