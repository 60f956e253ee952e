# SPDX-License-Identifier: MIT
"""What a work is: a program, the rivals that do it, and the bars that the pool must meet in it."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping, Optional, Tuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Rival:
    """One way to run a work."""

    name: str
    text: str
    api: str  # a program's first argument; of a Python program its allocator
    preloaded: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


# (rival, figure) -> the median, or None where there is none.
Figure = Callable[[str, str], Optional[float]]


@dataclass(frozen=True)
class Limit:
    """A value that a figure may have at most: factor * (a figure of a rival, or 1) + more."""

    factor: float = 0.0
    rival: str = ""
    figure: str = ""  # empty: the bar's own
    more: float = 0.0

    def value(self, figure: str, look: Figure) -> Optional[float]:
        if not self.rival:
            return self.more
        base = look(self.rival, self.figure or figure)
        return None if base is None else self.factor * base + self.more


@dataclass(frozen=True)
class Bar:
    """What a rival's figure must not exceed: the largest of some limits."""

    rival: str
    figure: str
    text: str
    limits: Tuple[Limit, ...]

    def limit(self, look: Figure) -> Optional[float]:
        """None where a figure that it depends on is missing."""
        values = [limit.value(self.figure, look) for limit in self.limits]
        return None if None in values else max(value for value in values if value is not None)


@dataclass(frozen=True)
class Work:
    """One program with its arguments, done by some rivals."""

    part: str
    name: str
    source: str  # programs/SOURCE.cu or .c, or python/SOURCE.py
    rivals: Tuple[str, ...]
    arguments: Tuple[str, ...] = ()  # behind the API
    bars: Tuple[Bar, ...] = ()
    trace: str = ""  # file name in test/traces, put before the other arguments
    needs: str = ""  # a Python package; such a work is a Python program
    limit_s: float = 40.0  # of one run
    runs_most: int = 1000
    is_served: bool = True  # under the preload the pool serves some of its requests
    says_way: bool = False  # a Python program whose first argument is the rival's API

    @property
    def full_name(self) -> str:
        return f"{self.part}/{self.name}"


def at_most(rival: str, figure: str, share: int, baseline: str) -> Bar:
    return Bar(rival, figure, f"at most 1/{share}", (Limit(1 / share, baseline),))


def is_within(rival: str, figure: str, most_ns: float, text: str) -> Bar:
    return Bar(rival, figure, f"at most {text}", (Limit(more=most_ns),))
