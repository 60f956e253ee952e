# SPDX-License-Identifier: MIT
"""What is measured: every work of every part, the rivals that do it, and the bars that this pool must meet in it."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import ten
from work import GIB, KIB, MIB, Bar, Limit, Rival, Work, at_most, is_within

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent / "traces"


def _torch(name: str, text: str, options: str, preloaded: bool = False) -> Rival:
    # The second name is what PyTorch before 2.9 reads.
    env = {"PYTORCH_ALLOC_CONF": options, "PYTORCH_CUDA_ALLOC_CONF": options} if options else {}
    return Rival(name, text, options or "native", preloaded, env)


ONE_PAGE = {"VPMM_EXTENT": "1"}
STREAM_WAITS = {"VPMM_STREAM_WAITS": "1"}
NO_DECAY = {"VPMM_DECAY_MS": "off"}
BYPASS = {"VPMM_MIN_SIZE": "page"}
UNSYNCED = {"VPMM_FREE_SYNC": "0"}
RIVALS: Dict[str, Rival] = {rival.name: rival for rival in (
    Rival("malloc", "cudaMalloc", "malloc"),
    Rival("async0", "cudaMallocAsync, threshold 0", "async0"),
    Rival("async", "cudaMallocAsync, threshold at its maximum", "async"),
    Rival("page-malloc", "VPMM_EXTENT=1, cudaMalloc", "malloc", True, ONE_PAGE),
    Rival("page", "VPMM_EXTENT=1, cudaMallocAsync", "async", True, ONE_PAGE),
    Rival("pool-malloc", "VPMM, cudaMalloc", "malloc", True),
    Rival("pool", "VPMM, cudaMallocAsync", "async", True),
    Rival("pool-waits", "VPMM_STREAM_WAITS=1, cudaMallocAsync", "async", True, STREAM_WAITS),
    Rival("pool-keeps", "VPMM_DECAY_MS=off, cudaMallocAsync", "async", True, NO_DECAY),
    Rival("pool-unsynced", "VPMM_FREE_SYNC=0, cudaMalloc", "malloc", True, UNSYNCED),
    Rival("pool-async0", "VPMM, cudaMallocAsync, threshold 0", "async0", True),
    Rival("bypass-malloc", "VPMM_MIN_SIZE=page, cudaMalloc", "malloc", True, BYPASS),
    Rival("bypass", "VPMM_MIN_SIZE=page, cudaMallocAsync", "async", True, BYPASS),
    _torch("native", "PyTorch, native", ""),
    _torch("expandable", "PyTorch, expandable segments", "expandable_segments:True"),
    _torch("torch-async", "PyTorch, cudaMallocAsync", "backend:cudaMallocAsync"),
    Rival("weights-resident", "all weights resident", "resident"),
    Rival("weights-ring", "a ring of two layers, written by hand", "ring"),
    Rival("weights-accelerate", "accelerate, dispatch_model", "accelerate"),
    Rival("weights-vpmm", "vpmm.offload", "vpmm", True),
    _torch("torch-pool", "PyTorch, cudaMallocAsync, VPMM", "backend:cudaMallocAsync", True),
)}
ASYNC = ("async", "async0", "page", "pool")
MALLOC = ("malloc", "page-malloc", "pool-malloc")
BOTH = ("malloc", "async", "async0", "page", "pool", "pool-malloc")


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
                [at_most("pool", "pair_t1", 4, "async"), at_most("pool", "pair_t16", 150, "async")])
         for n_bytes in (2 * MIB, 64 * MIB, GIB)]

FREES = [_pairs("malloc", n_bytes, MALLOC, (1, 16), [at_most("pool-malloc", "pair_t1", 50, "malloc")])
         for n_bytes in (4 * MIB, 64 * MIB, 256 * MIB, GIB)]

# Requests below a page that pass through. A pair is two calls.
ADDED_NS = 40.0
SMALL = [_pairs("small", n_bytes, (bare, pool), (1,), prefix=prefix, bars=[
    Bar(pool, "pair_t1", "at most 20 ns a call more", (Limit(1, bare, more=ADDED_NS),))])
    for bare, pool, prefix in (("async", "bypass", "cudaMallocAsync, "), ("malloc", "bypass-malloc", "cudaMalloc, "))
    for n_bytes in (KIB, 64 * KIB, MIB)]


def _blocks(n_bytes: int, text: str) -> Work:
    return Work("small", f"12 GiB in blocks of {text}", "blocks", ("malloc", "async", "pool-malloc", "pool"),
                (str(n_bytes), "12"), runs_most=1, bars=tuple(
                    bar for rival, bare in (("pool-malloc", "malloc"), ("pool", "async")) for bar in (
                        Bar(rival, "held_ratio", "at most 1.06", (Limit(more=1.06),)),
                        Bar(rival, "held_peak", f"at most that of {bare}", (Limit(1, bare),)))))


# Requests below a page that share pages of the library's, and those a little above whole pages.
SERVED = [
    *(Work("small", f"served, cudaMallocAsync, {size_text(n_bytes)}", "pairs", ("async", "pool"),
           (str(n_bytes), PAIR_SECONDS, "1", "16"),
           (is_within("pool", "pair_t1", 80.0, "80 ns"), is_within("pool", "pair_t16", 150.0, "150 ns")))
      for n_bytes in (256, 4 * KIB, 64 * KIB, MIB)),
    *(Work("small", f"served, cudaMalloc, {n_bytes} bytes", "pairs", ("malloc", "pool-malloc", "pool-unsynced"),
           (str(n_bytes), PAIR_SECONDS, "1"),
           (is_within("pool-malloc", "pair_t1", 700.0, "0.7 us"), is_within("pool-unsynced", "pair_t1", 150.0, "0.15 us")))
      for n_bytes in (4 * KIB, 200000)),
    Work("small", "free of 4 KiB behind a kernel", "behind", ("malloc", "pool-malloc", "pool-unsynced"), (str(4 * KIB),),
         (is_within("pool-unsynced", "free_p50", 10e3, "10 us"),), runs_most=3),
    *(_blocks(int(mib * MIB), f"{mib} MiB") for mib in (1.1, 2.1, 3.05, 4.1, 8.1)),
    Work("small", "130 MiB of mixed sizes, of which a tenth stays", "rest", ("malloc", "async0", "pool-malloc", "pool-async0"),
         ("130",), runs_most=3, bars=(
             Bar("pool-async0", "held_peak", "at most 1.15 of what is live", (Limit(1.15, "pool-async0", "live_peak"),)),
             Bar("pool-async0", "held_rest", "at most twice what stays, and 32 MiB",
                 (Limit(2, "pool-async0", "live_rest", 32.0 * MIB),)))),
    Work("small", "a network that allocates every tensor", "train", ("malloc", "pool-malloc", "pool-unsynced"), ("200",),
         (Bar("pool-malloc", "driver_allocations", "at most 18", (Limit(more=18.0),)),), runs_most=3),
]

STREAMS = [
    Work("streams", "random sizes, 64 live", "mixed", ("malloc", *ASYNC), limit_s=60.0, bars=(
        at_most("pool", "pair", 10, "async"), at_most("pool", "malloc_p99", 20, "async"))),
    Work("streams", "alternate two streams", "alternate", ASYNC, bars=(at_most("pool", "pair", 2, "async"),)),
    Work("streams", "free behind a kernel", "behind", ("malloc", "async", "page-malloc", "pool-malloc", "pool"),
         (str(64 * MIB),), bars=(
        Bar("pool-malloc", "free_p50", "at most 10 us", (Limit(more=10e3),)),)),
    Work("streams", "loop over four streams", "overlap", (*MALLOC, "async", "pool"), bars=(
        at_most("pool-malloc", "iteration", 10, "malloc"),)),
]


def _growth(gib: int) -> Work:
    limits = (Limit(2, "malloc"), Limit(1 / 4, "async"))
    text = "at most 2x cudaMalloc or 1/4 of cudaMallocAsync"
    return Work("growth", f"{gib} GiB", "growth", ("malloc", "async", "page", "pool", "pool-malloc"), (str(gib),),
                (Bar("pool", "malloc", text, limits), Bar("pool-malloc", "malloc", text, limits)))


GROWTH = [
    *map(_growth, (1, 8, 32)),
    Work("growth", "walkthrough x4 GiB", "walkthrough", BOTH, bars=(
        at_most("pool", "malloc_44", 20, "async"),
        Bar("pool", "held_peak", "64.0 GiB", (Limit(more=64 * GIB + PAGE_BYTES),)))),
    Work("growth", "40 GiB from every other of 64 x 1.5 GiB", "compact", ("malloc", "async", "page", "pool"), bars=(
        at_most("pool", "malloc_40", 10, "async"),)),
]


def _trace(path: Path) -> Work:
    tight = Bar("pool", "held_ratio", "at most cudaMallocAsync's, or the rounding + 0.01",
                (Limit(1, "async"), Limit(1, "pool", "rounding", 0.01)))
    return Work("traces", path.name.partition(".")[0], "replay", BOTH, trace=path.name, limit_s=60.0, runs_most=3, bars=(
        at_most("pool", "cold_total", 2, "async"), at_most("pool", "second_total", 5, "async"), tight))


def traces() -> List[Work]:
    """One work for each trace that is there."""
    return [_trace(path) for path in sorted(TRACES.glob("*.csv.gz"))]


def decays() -> List[Work]:
    """What it costs that memory goes back to the device while the program works: every trace again."""
    free = tuple(Bar("pool", figure, "at most 1.01 of the same without decay", (Limit(1.01, "pool-keeps"),))
                 for figure in ("cold_total", "second_total"))
    return [Work("decay", path.name.partition(".")[0], "replay", ("pool", "pool-keeps"), trace=path.name, limit_s=60.0,
                 bars=free) for path in sorted(TRACES.glob("*.csv.gz"))]


def unrecorded(selected: Sequence[Work]) -> List[str]:
    """The names of those traces of these works that are not there."""
    return list(dict.fromkeys(work.name for work in selected if work.trace and not (TRACES / work.trace).exists()))


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

# ---- weights larger than their budget ----

MODELS = "../../models"  # beside the folders of runs
GIB_VARIABLE, GIB_DEFAULT = "BENCH_GIB", "20"


def weights() -> List[Work]:
    """One model. Its size is BENCH_GIB's, because a larger one takes minutes to write."""
    gib = os.environ.get(GIB_VARIABLE, GIB_DEFAULT)
    vpmm = "weights-vpmm"
    bars = (
        *(Bar(vpmm, f"decode_{share}", "at most 1/0.97 of what the ring leaves to copy",
              (Limit(1 / 0.97, vpmm, f"attainable_{share}"),)) for share in (75, 50, 25)),
        Bar(vpmm, "over_bound_50", "at most 1/0.95 of what the budget leaves to copy", (Limit(more=1 / 0.95),)),
        Bar(vpmm, "decode_graph_50", "at most 1/7 of accelerate's pass", (Limit(1 / 7, "weights-accelerate", "decode_50"),)),
        Bar(vpmm, "prefill_50", "at most 1.02 of resident", (Limit(1.02, "weights-resident", "prefill_resident"),)),
        Bar(vpmm, "balanced_50", "at most 1/0.93 of computing, or of what the ring leaves to copy",
            (Limit(1 / 0.93, "weights-resident", "balanced_resident"), Limit(1 / 0.93, vpmm, "attainable_balanced_50"))),
        Bar(vpmm, "decode_all", "at most 1.01 of resident", (Limit(1.01, vpmm, "decode_resident"),)),
        Bar(vpmm, "first", "at most 1.3 of carrying all, and 3 s", (Limit(1.3, vpmm, "carry", 3e9),)),
    )
    rivals = ("weights-resident", "weights-ring", "weights-accelerate", vpmm)
    return [Work("weights", f"Llama of {gib} GiB", "weights", rivals, (gib, MODELS), bars, needs="torch", limit_s=200.0,
                 runs_most=1, is_served=False, says_way=True)]


# Of all runs of a part.
PART_LIMIT_S = 480.0


def works() -> List[Work]:
    return [*PAIRS, *FREES, *SMALL, *SERVED, *STREAMS, *RING, *EVENTS, *HANDOVERS, *GROWTH, *traces(), *decays(), *ten.works(),
            *PYTORCH, *weights()]


def parts() -> List[str]:
    """All parts, in the order in which they run."""
    return list(dict.fromkeys([*(work.part for work in works()), "traces", "decay", "pytorch"]))


def select(names: Sequence[str]) -> List[Work]:
    """The works of the named parts, or whose full name begins with PART/NAME. Without names those that nobody has to ask
    for: none of an untouched trace, and none of a trace that is not there. Raises ValueError for a name that selects
    nothing."""
    everything = works()
    if not names:
        return [work for work in everything if work.part not in ten.HALVES["untouched"] and not unrecorded([work])]
    for name in names:
        if not any(_selects(name, work) for work in everything):
            raise ValueError(f"no part {name!r}; there are {', '.join(parts())}")
    return [work for work in everything if any(_selects(name, work) for name in names)]


def _selects(name: str, work: Work) -> bool:
    return work.part == name or ("/" in name and work.full_name.startswith(name))
