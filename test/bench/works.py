# SPDX-License-Identifier: MIT
"""What is measured: every work of every part, the rivals that do it, and the bars that this pool must meet in it."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent / "traces"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Rival:
    """One way to run a work."""

    name: str
    text: str
    api: str  # a program's first argument; of a Python program its allocator
    preloaded: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def _torch(name: str, text: str, options: str, preloaded: bool = False) -> Rival:
    # The second name is what PyTorch before 2.9 reads.
    env = {"PYTORCH_ALLOC_CONF": options, "PYTORCH_CUDA_ALLOC_CONF": options} if options else {}
    return Rival(name, text, options or "native", preloaded, env)


ONE_PAGE = {"VPMM_EXTENT": "1"}
STREAM_WAITS = {"VPMM_STREAM_WAITS": "1"}
RIVALS: Dict[str, Rival] = {rival.name: rival for rival in (
    Rival("malloc", "cudaMalloc", "malloc"),
    Rival("async0", "cudaMallocAsync, threshold 0", "async0"),
    Rival("async", "cudaMallocAsync, threshold at its maximum", "async"),
    Rival("page-malloc", "VPMM_EXTENT=1, cudaMalloc", "malloc", True, ONE_PAGE),
    Rival("page", "VPMM_EXTENT=1, cudaMallocAsync", "async", True, ONE_PAGE),
    Rival("pool-malloc", "VPMM, cudaMalloc", "malloc", True),
    Rival("pool", "VPMM, cudaMallocAsync", "async", True),
    Rival("pool-waits", "VPMM_STREAM_WAITS=1, cudaMallocAsync", "async", True, STREAM_WAITS),
    _torch("native", "PyTorch, native", ""),
    _torch("expandable", "PyTorch, expandable segments", "expandable_segments:True"),
    _torch("torch-async", "PyTorch, cudaMallocAsync", "backend:cudaMallocAsync"),
    _torch("torch-pool", "PyTorch, cudaMallocAsync, VPMM", "backend:cudaMallocAsync", True),
)}
ASYNC = ("async", "async0", "page", "pool")
MALLOC = ("malloc", "page-malloc", "pool-malloc")
BOTH = ("malloc", "async", "async0", "page", "pool", "pool-malloc")

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

    @property
    def full_name(self) -> str:
        return f"{self.part}/{self.name}"


def _at_most(rival: str, figure: str, share: int, baseline: str) -> Bar:
    return Bar(rival, figure, f"at most 1/{share}", (Limit(1 / share, baseline),))


def size_text(n_bytes: int) -> str:
    for unit, text in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if n_bytes % unit == 0:
            return f"{n_bytes // unit} {text}"
    return f"{n_bytes} bytes"


PAGE_BYTES = 2 * MIB
PAIR_SECONDS = "0.1"


def _pairs(part: str, n_bytes: int, rivals: Sequence[str], threads: Sequence[int], bars: Sequence[Bar],
           prefix: str = "") -> Work:
    return Work(part, prefix + size_text(n_bytes), "pairs", tuple(rivals), bars=tuple(bars), is_served=n_bytes >= PAGE_BYTES,
                arguments=(str(n_bytes), PAIR_SECONDS, *map(str, threads)))


PAIRS = [_pairs("pairs", n_bytes, ASYNC, (1, 2, 4, 8, 16),
                [_at_most("pool", "pair_t1", 4, "async"), _at_most("pool", "pair_t16", 150, "async")])
         for n_bytes in (2 * MIB, 64 * MIB, GIB)]

FREES = [_pairs("malloc", n_bytes, MALLOC, (1, 16), [_at_most("pool-malloc", "pair_t1", 50, "malloc")])
         for n_bytes in (4 * MIB, 64 * MIB, 256 * MIB, GIB)]

# A pair is two calls.
ADDED_NS = 40.0
SMALL = [_pairs("small", n_bytes, (bare, pool), (1,), prefix=prefix, bars=[
    Bar(pool, "pair_t1", "at most 20 ns a call more", (Limit(1, bare, more=ADDED_NS),))])
    for bare, pool, prefix in (("async", "pool", "cudaMallocAsync, "), ("malloc", "pool-malloc", "cudaMalloc, "))
    for n_bytes in (KIB, 64 * KIB, MIB)]

STREAMS = [
    Work("streams", "random sizes, 64 live", "mixed", ("malloc", *ASYNC), limit_s=60.0, bars=(
        _at_most("pool", "pair", 10, "async"), _at_most("pool", "malloc_p99", 20, "async"))),
    Work("streams", "alternate two streams", "alternate", ASYNC, bars=(_at_most("pool", "pair", 2, "async"),)),
    Work("streams", "free behind a kernel", "behind", ("malloc", "async", "page-malloc", "pool-malloc", "pool"), bars=(
        Bar("pool-malloc", "free_p50", "at most 10 us", (Limit(more=10e3),)),)),
    Work("streams", "loop over four streams", "overlap", (*MALLOC, "async", "pool"), bars=(
        _at_most("pool-malloc", "iteration", 10, "malloc"),)),
]


def _growth(gib: int) -> Work:
    limits = (Limit(2, "malloc"), Limit(1 / 4, "async"))
    text = "at most 2x cudaMalloc or 1/4 of cudaMallocAsync"
    return Work("growth", f"{gib} GiB", "growth", ("malloc", "async", "page", "pool", "pool-malloc"), (str(gib),),
                (Bar("pool", "malloc", text, limits), Bar("pool-malloc", "malloc", text, limits)))


GROWTH = [
    *map(_growth, (1, 8, 32)),
    Work("growth", "walkthrough x4 GiB", "walkthrough", BOTH, bars=(
        _at_most("pool", "malloc_44", 20, "async"),
        Bar("pool", "held_peak", "64.0 GiB", (Limit(more=64 * GIB + PAGE_BYTES),)))),
    Work("growth", "40 GiB from every other of 64 x 1.5 GiB", "compact", ("malloc", "async", "page", "pool"), bars=(
        _at_most("pool", "malloc_40", 10, "async"),)),
]


def _trace(path: Path) -> Work:
    tight = Bar("pool", "held_ratio", "at most cudaMallocAsync's, or the rounding + 0.01",
                (Limit(1, "async"), Limit(1, "pool", "rounding", 0.01)))
    return Work("traces", path.name.partition(".")[0], "replay", BOTH, trace=path.name, limit_s=60.0, runs_most=3, bars=(
        _at_most("pool", "cold_total", 2, "async"), _at_most("pool", "second_total", 5, "async"), tight))


def traces() -> List[Work]:
    """One work for each trace that is there."""
    return [_trace(path) for path in sorted(TRACES.glob("*.csv.gz"))]


# The bar was set for a peak of 41.97 GiB of tensors.
PYTORCH = [Work("pytorch", "GPT", "gpt", ("native", "expandable", "torch-async", "torch-pool"), needs="torch",
                limit_s=150.0, runs_most=3, bars=(
                    Bar("torch-pool", "held_peak", "at most 43.0 GiB for 41.97 live",
                        (Limit(43.0 / 41.97, "torch-async", "live_peak"),)),
                    Bar("torch-pool", "step", "at most 1.005 of native", (Limit(1.005, "native"),))))]

# ---- the program's own order: programs of the driver API ----

ORDER = ("async", "pool")
RING_ROUNDS, RING_BYTES = "1500", 64 * MIB
NO_WORSE = (
    Bar("pool", "held_peak", "at most cudaMallocAsync's + 10%", (Limit(1.1, "async"),)),
    Bar("pool", "pair", "at most cudaMallocAsync's", (Limit(1, "async"),)),
)


def _ring(name: str, least_mib: int, most_mib: int, *words: str, bars: Sequence[Bar] = NO_WORSE,
          rivals: Sequence[str] = ORDER) -> Work:
    return Work("ring", name, "ring", tuple(rivals), (RING_ROUNDS, str(least_mib), str(most_mib), *words), tuple(bars))


RING = [
    _ring("64 MiB", 64, 64),
    _ring("16 to 112 MiB", 16, 112),
    _ring("64 MiB, blocking streams", 64, 64, "blocking"),
    # Only what is complete may be reused there, unless a stream may be made to wait.
    _ring("without back, 64 MiB", 64, 64, "without-back", rivals=(*ORDER, "pool-waits"), bars=(
        Bar("pool-waits", "held_peak", "at most 4 blocks", (Limit(more=4 * RING_BYTES + PAGE_BYTES),)),)),
]


def _events(name: str, n_frees: int, more_ns: float) -> Work:
    return Work("events", name, "events", ORDER, (str(n_frees),), tuple(
        Bar("pool", f"{call}_best", f"at most {more_ns:g} ns more", (Limit(1, "async", more=more_ns),))
        for call in ("record", "wait")))


EVENTS = [_events("nothing pending", 0, 10.0), _events("100 pending frees", 100, 40.0)]

# Pairs of streams and events. What is done for a hand-over grows with neither.
FEW, MORE_EVENTS, MORE_STREAMS = (10, 100), (10, 10000), (1000, 10000)


def _handover(crowd: Tuple[int, int]) -> str:
    """The figure of so many streams and events."""
    return f"handover_s{crowd[0]}_e{crowd[1]}"


HANDOVERS = [Work("handovers", "2 MiB", "handovers", ORDER, limit_s=60.0, arguments=(
    "10000", *(str(number) for crowd in (FEW, MORE_EVENTS, MORE_STREAMS) for number in crowd)), bars=tuple(
        Bar("pool", _handover(crowd), "at most cudaMallocAsync's, or twice that of 10 streams and 100 events",
            (Limit(1, "async"), Limit(2, "pool", _handover(FEW)))) for crowd in (MORE_EVENTS, MORE_STREAMS)))]

# Of all runs of a part.
PART_LIMIT_S = 480.0


def works() -> List[Work]:
    return [*PAIRS, *FREES, *SMALL, *STREAMS, *RING, *EVENTS, *HANDOVERS, *GROWTH, *traces(), *PYTORCH]


def parts() -> List[str]:
    """All parts, in the order in which they run."""
    return list(dict.fromkeys([*(work.part for work in works()), "traces", "pytorch"]))


def select(names: Sequence[str]) -> List[Work]:
    """The works of the named parts, or whose full name begins with PART/NAME; all without names. Raises ValueError for a
    name that selects nothing."""
    everything = works()
    for name in names:
        if not any(_selects(name, work) for work in everything):
            raise ValueError(f"no part {name!r}; there are {', '.join(parts())}")
    return [work for work in everything if not names or any(_selects(name, work) for name in names)]


def _selects(name: str, work: Work) -> bool:
    return work.part == name or ("/" in name and work.full_name.startswith(name))
