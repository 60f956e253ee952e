# SPDX-License-Identifier: MIT
"""What is run: every program of every part, what it may be answered, and the bars that its figures must meet."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, FrozenSet, List, Optional, Tuple

STATIC, SHARED, PER_THREAD = "static", "shared", "per-thread"
DRIVER = "driver"  # no runtime: a program of the driver API, linked with libcuda, with its expected output
DIRECT = "direct"  # the same without one

BARE, AGAIN, PRELOADED = "bare", "bare again", "preloaded"
TRUTHS = Path(__file__).resolve().parent.parent / "programs"
CONFORMANCE_SOURCES = Path(__file__).resolve().parent / "conformance"
# Those of the driver API, which run beside the simulated device too.
CONFORMANCE_NAMES = (CONFORMANCE_SOURCES / "names").read_text().split()

# Requests that may always pass through: small ones of memory pools that the program made or where VPMM_MIN_SIZE leaves
# them to CUDA, and those made before the runtime has made its context, which it repeats.
ALWAYS_PASSED = frozenset({"small", "no_context"})


@dataclass(frozen=True)
class Bar:
    """A figure of the preloaded run that must lie within bounds."""

    figure: str
    text: str
    most: float = math.inf
    least: float = -math.inf

    def met(self, value: Optional[float]) -> bool:
        return value is not None and self.least <= value <= self.most


@dataclass(frozen=True)
class Program:
    """One row of the table: a program, run bare (twice) and preloaded."""

    part: str
    name: str
    source: str  # programs/SOURCE.cu, python/SOURCE.py, SOURCE.c of the truth programs, or conformance/SOURCE.cu or .c
    cudart: str = ""  # how a CUDA program is linked; empty: it is Python
    runs: Tuple[str, ...] = (BARE, AGAIN, PRELOADED)
    arguments: Tuple[str, ...] = ()
    env: Dict[str, str] = field(default_factory=dict)
    limit_s: float = 60.0  # of one run
    alone: bool = False  # nothing else may use the device meanwhile
    serves: Optional[bool] = True  # some request must be served by the pool; None: it may be none
    # Reasons beyond ALWAYS_PASSED for which requests may pass through; None: any.
    passes: Optional[FrozenSet[str]] = frozenset()
    may_fail: bool = False  # it may end with an error, as long as all runs do so alike
    needs: str = ""  # a Python package
    devices: int = 1
    look: str = ""  # what is looked at from outside at its marks: "memory" or "regions"
    sanitizer: Tuple[str, ...] = ()  # options of compute-sanitizer; empty: the program runs by itself
    reports: bool = False  # compute-sanitizer may report errors, as long as all runs have as many
    bars: Tuple[Bar, ...] = ()
    differs_as: str = ""  # its name in the table of differences that are right; empty: nothing may differ

    @property
    def full_name(self) -> str:
        return f"{self.part}/{self.name}"


def _cuda(part: str, source: str, **more: object) -> Program:
    return Program(part, more.pop("name", source), source, more.pop("cudart", STATIC), **more)


def _python(name: str, source: str, needs: str, part: str = "python", **more: object) -> Program:
    return Program(part, name, source, needs=needs, limit_s=150.0, **more)


def _stitches(n: int) -> Bar:
    """The program proves something of moved pages only if pages were moved."""
    return Bar("stitches", f"at least {n}", least=n)


INTEGRITY = [
    _cuda("integrity", "pattern", alone=True, limit_s=90.0, bars=(_stitches(1),)),
    _cuda("integrity", "pattern", name="pattern, 4 threads", arguments=("4",), alone=True, limit_s=90.0,
          bars=(_stitches(1),)),
    # One for each way: no free block is large enough.
    _cuda("integrity", "spin", alone=True, limit_s=90.0, bars=(_stitches(5),)),
    _cuda("integrity", "queued", alone=True),
    _cuda("integrity", "flag", alone=True),
    _cuda("integrity", "releases", alone=True),
    # The memory of each of its pauses goes back, from a thread that has no context.
    _cuda("integrity", "idle", alone=True, env={"VPMM_IDLE_MS": "50"},
          bars=(Bar("trimmed_bytes", "at least 4 GiB", least=4 << 30),)),
]


def _ordinary() -> List[Program]:
    """Ordinary programs, each linked in all three ways."""
    passes = {
        "graphs": frozenset({"capturing"}),
        # The first request of each kind of row tells its pitch.
        "mixes": frozenset({"other"}),
        "pitches": frozenset({"other"}),
        "meminfo": frozenset({"full"}),
        "errors": frozenset({"large"}),
    }
    return [
        _cuda("programs", source, name=f"{source}, {cudart}", cudart=cudart,
              passes=passes.get(source, frozenset()), alone=True)
        for source in ("mixes", "pools", "graphs", "meminfo", "errors", "threads", "reset", "pitches")
        for cudart in (STATIC, SHARED, PER_THREAD)
    ] + [
        _cuda("programs", "mixes", name="mixes, small ones left to CUDA", env={"VPMM_MIN_SIZE": "page"},
              passes=passes["mixes"], alone=True),
    ]


def _torch(name: str, options: str, source: str = "torch_train", **more: object) -> Program:
    # The second name is what PyTorch before 2.9 reads.
    env = {"PYTORCH_ALLOC_CONF": options, "PYTORCH_CUDA_ALLOC_CONF": options} if options else {}
    return _python(name, source, "torch", env=env, **more)


# The same kernels in every run: XLA otherwise chooses by measuring.
XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def _jax(name: str, **env: str) -> Program:
    return _python(name, "jax_train", "jax", env={"XLA_FLAGS": XLA_FLAGS, **env}, serves=None,
                   passes=frozenset({"explicit_pool"}))


PYTHON = [
    _torch("PyTorch, native", ""),
    _torch("PyTorch, expandable segments", "expandable_segments:True", serves=None),
    _torch("PyTorch, cudaMallocAsync", "backend:cudaMallocAsync"),
    _python("PyTorch, no caching", "torch_train", "torch", env={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    *(_python(f"CuPy, {text}", "cupy_arrays", "cupy", arguments=(argument,))
      for argument, text in (("pool", "its pool"), ("none", "no pool"), ("async", "async pool"))),
    _jax("JAX, BFC", XLA_PYTHON_CLIENT_MEM_FRACTION=".05"),
    _jax("JAX, platform", XLA_PYTHON_CLIENT_ALLOCATOR="platform"),
    _jax("JAX, cuda_async", XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async", XLA_PYTHON_CLIENT_PREALLOCATE="false"),
    _python("Numba", "numba_kernels", "numba"),
]

# nvidia-smi counts in MiB: one page either way.
HELD_MIB, PAGE_MIB = 65536.0, 2.0

FIGURES = [
    _cuda("walkthrough", "walkthrough", alone=True, look="memory", bars=(
        Bar("held_mib", "64 GiB, one page more or less", HELD_MIB + PAGE_MIB, HELD_MIB - PAGE_MIB),
        Bar("malloc_44_us", "below 10 ms", 10_000.0),
    )),
    _cuda("free", "free", alone=True, bars=(Bar("free_median_us", "below 100 us", 100.0),)),
    _cuda("leak", "leak", alone=True, look="regions", bars=(
        # Nothing held would mean that a dump of no pool was read.
        Bar("held_bytes_1", "above 0", least=1.0),
        *(Bar(f"{figure}_{round_}", "0", 0.0, 0.0)
          for round_ in (1, 2) for figure in ("live_bytes", "unsettled_bytes", "wrong_sums")),
    )),
]

# Every thread keeps its share of 95% of the device, so large requests are served by moving pages.
STRESS_BARS = (
    _stitches(30),
    Bar("moved_gib", "at least 32", least=32.0),
    Bar("live_peak_percent", "at least 90", least=90.0),
    Bar("wrong_words", "0", 0.0, 0.0),
)


def _stress(name: str, *bars: Bar, **env: str) -> Program:
    return _cuda("stress", "stress", name=name, arguments=("6",), env=env, alone=True, limit_s=60.0,
                 passes=frozenset({"full"}), bars=(*STRESS_BARS, *bars))


STRESS = [
    # Pages that blocks share may keep room from large ones on a full device.
    _stress("extents of one page", Bar("refused", "0", 0.0, 0.0), VPMM_EXTENT="1", VPMM_MIN_SIZE="page"),
    _stress("as it comes"),
    _stress("no slack", VPMM_SLACK="0"),
]


def _memcheck(source: str, *bars: Bar, report: str = "no", **more: object) -> Program:
    sanitizer = ("--tool", "memcheck", "--report-api-errors", report)
    return _cuda("memcheck", source, runs=(BARE, PRELOADED), sanitizer=sanitizer, alone=True, limit_s=30.0, bars=bars,
                 **more)


MEMCHECK = [
    _memcheck("pattern", _stitches(1), arguments=("2", "1024")),
    _memcheck("mixes", passes=frozenset({"other"})),
    _memcheck("pools"),
    _memcheck("graphs", passes=frozenset({"capturing"})),
    _memcheck("threads"),
    # A write past the end is refused bare only: the rest of the page is mapped.
    _memcheck("errors", arguments=("within",), report="explicit", reports=True, passes=frozenset({"large"})),
]

FIDELITY = [
    Program("fidelity", name, name, cudart=DRIVER, runs=(BARE, PRELOADED), serves=None, alone=True, limit_s=30.0,
            passes=None)
    for name in (TRUTHS / "names").read_text().split()
]

CAPTURE = [
    _cuda("capture", "capturing", passes=frozenset({"capturing"})),
    _cuda("capture", "capturing", name="capturing, global", arguments=("global",), may_fail=True, serves=None,
          passes=frozenset({"capturing"})),
    _python("PyTorch, CUDA graphs", "torch_graph", "torch", part="capture", passes=frozenset({"capturing"})),
    *(_torch(f"PyTorch, {way}, {backend or 'native'}", f"backend:{backend}" if backend else "", source="torch_graphed",
             arguments=(way,), part="capture", passes=frozenset({"capturing"}))
      for way in ("graph", "callables", "compiled") for backend in ("", "cudaMallocAsync")),
]

# NCCL with both devices: the same sums, and hardly slower.
REDUCE_BAR = Bar("bandwidth_percent", "at least 98% of bare", least=98.0)


def _reduces(name: str, arguments: Tuple[str, ...] = (), **env: str) -> Program:
    return _python(f"PyTorch and NCCL, {name}", "torch_reduce", "torch", part="two", arguments=arguments, env=env,
                   devices=2, alone=True, bars=(REDUCE_BAR,))


TWO = [
    _cuda("two", "two", name="two devices, cudaMalloc", devices=2, alone=True),
    _cuda("two", "two", name="two devices, cudaMallocAsync", arguments=("async",), devices=2, alone=True),
    _reduces("defaults"),
    _reduces("without VMM", NCCL_CUMEM_ENABLE="0"),
    _reduces("with VMM", NCCL_CUMEM_ENABLE="1"),
    _reduces("registered", ("registered",), NCCL_CUMEM_ENABLE="1"),
]

SHARING = [
    *(_cuda("sharing", "sharing", name=f"sharing, {cudart}", cudart=cudart, alone=True,
            bars=(Bar("early_wrong_words", "0", 0.0, 0.0),))
      for cudart in (STATIC, SHARED)),
    _cuda("sharing", "sharing", name="sharing, extents of one page", env={"VPMM_EXTENT": "1"}, alone=True,
          bars=(Bar("early_wrong_words", "0", 0.0, 0.0),)),
    _cuda("sharing", "sharing", name="sharing, not emulated", env={"VPMM_IPC": "0"}, alone=True,
          passes=frozenset({"no_ipc"})),
    _python("PyTorch, tensors between processes", "torch_sharing", "torch", part="sharing"),
]

# A process that works on with little lets a neighbour have what it took before, and is not slowed down by it.
NEIGHBOUR = [
    _cuda("neighbour", "neighbour", name=f"neighbour, {neighbour}, {how}", arguments=(neighbour, how), alone=True,
          serves=None, passes=None, bars=(Bar("refused_s", "at most 4", 4.0), Bar("rate_percent", "at least 95", least=95.0)))
    for neighbour in ("bare", "alike") for how in ("whole", "blocks")
]


def _conforms(source: str, name: str = "", cudart: str = STATIC, table: str = "", **more: object) -> Program:
    return Program("conformance", name or source, source, cudart=cudart, differs_as=table or source, serves=None,
                   passes=None, alone=True, limit_s=90.0, **more)


# Programs that print all they can observe, line by line: conformance.py and docs/DIFFERENCES.md.
CONFORMANCE = [
    *(_conforms(source) for source in ("memory", "frees", "pools", "captures", "graphs", "copies", "resets", "ipc",
                                       "waiting", "info")),
    _conforms("memory", "memory, per-thread", PER_THREAD),
    _conforms("captures", "captures, shared", SHARED),
    _conforms("waiting", "waiting, frees wait", table="waiting,frees-wait", env={"VPMM_FREE_SYNC": "1"}),
    _conforms("sticky", may_fail=True),
    _conforms("sticky", "sticky, reset", arguments=("reset",), table="sticky,reset", may_fail=True),
    *(_conforms(name, cudart=DIRECT, devices=2 if name.endswith("peers") else 1) for name in CONFORMANCE_NAMES),
    _conforms("peers", devices=2),
]

WEIGHTS_BARS = (
    Bar("over_budget_bytes", "at most 8 MiB", 8 << 20),
    Bar("steady_bytes", "at most 8 MiB", 8 << 20),
    Bar("steady_vmm_calls", "0", 0.0, 0.0),
    Bar("steady_host_waits", "0", 0.0, 0.0),
)

# Weights larger than their budget. Bare they are resident, and the outputs are compared.
WEIGHTS = [
    *(_cuda("weights", "weights", name=f"weights, {way}", arguments=arguments, runs=(BARE, PRELOADED), alone=True,
            serves=None, passes=None, limit_s=200.0, bars=WEIGHTS_BARS)
      for way, arguments in (("pinned", ("2000",)), ("a file", ("10000", "file")))),
    _python("weights, PyTorch", "weights_llama", "torch", part="weights", runs=(BARE, PRELOADED), alone=True, serves=None,
            passes=None),
]

PROGRAMS: List[Program] = [*FIDELITY, *INTEGRITY, *STRESS, *_ordinary(), *MEMCHECK, *PYTHON, *FIGURES, *CAPTURE, *SHARING,
                           *NEIGHBOUR, *WEIGHTS, *TWO, *CONFORMANCE]

# Of all runs of a part; other parts have the default.
PART_LIMITS_S = {"fidelity": 90.0, "stress": 240.0, "memcheck": 180.0, "conformance": 540.0}
PART_LIMIT_S = 480.0


def parts() -> List[str]:
    """All parts, in the order in which they run."""
    return list(dict.fromkeys(program.part for program in PROGRAMS))


def part_limit_s(part: str) -> float:
    """The time of all runs of a part together."""
    return PART_LIMITS_S.get(part, PART_LIMIT_S)


def select(names: List[str]) -> List[Program]:
    """The programs of the named parts, or whose full name begins with a given name; all without names. Raises
    ValueError for a name that selects nothing."""
    for name in names:
        if not any(_selects(name, program) for program in PROGRAMS):
            raise ValueError(f"no part {name!r}; there are {', '.join(parts())}")
    return [p for p in PROGRAMS if not names or any(_selects(name, p) for name in names)]


def _selects(name: str, program: Program) -> bool:
    return program.part == name or ("/" in name and program.full_name.startswith(name))
