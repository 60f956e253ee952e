# SPDX-License-Identifier: MIT
"""Makes what the benchmarks need: the library, the programs, the recorder, and the traces unpacked."""
from __future__ import annotations

import gzip
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterable, List

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gpu"))

import build  # noqa: E402
from catalogue import STATIC  # noqa: E402
from works import TRACES, Work  # noqa: E402

SOURCES = HERE / "programs"
FOLDER = build.BUILD / "bench"
BINARIES = FOLDER / "programs"
CONTEXT = "context"
# Sources in C that a program is linked with, and objects of the library's build.
PARTS_OF = {"replay": ("load.c",), "ring": ("kernel.c",)}
OBJECTS_OF = {"replay": ("src/tools/replay/libreplay.a.p/tape.c.o", "src/tools/replay/libreplay.a.p/numbers.c.o",
                         "src/tools/trace/libtrace_files.a.p/*.o", "src/lib/base/libbase.a.p/*.o")}
LIBRARIES_OF = {"train": ("-lcublas",)}
# What lies elsewhere than the programs' own headers.
SHARED = (HERE.parent / "gpu" / "programs" / "common.cuh", build.ROOT / "src" / "tools" / "replay" / "tape.h",
          *(HERE / name for name in ("load.h", "load.c", "kernel.h", "kernel.c")))
RECORD = HERE / "record"
INCLUDES = [f"-I{build.ROOT / 'src' / 'lib'}", f"-I{build.ROOT / 'src' / 'tools'}"]


def program_of(source: str) -> Path:
    """A program is in C where it needs the driver alone, and in CUDA otherwise."""
    in_c = SOURCES / f"{source}.c"
    return in_c if in_c.exists() else in_c.with_suffix(".cu")


def source_of(work: Work) -> Path:
    return HERE / "python" / f"{work.source}.py" if work.needs else program_of(work.source)


def binary(source: str) -> Path:
    return BINARIES / source


def trace_of(work: Work) -> Path:
    """Where the work's trace lies unpacked."""
    return FOLDER / "traces" / work.trace.removesuffix(".gz")


def programs(sources: Iterable[str]) -> List[str]:
    """Compiles the programs that are not up to date; says which could not be, and why. Raises build.BuildError without a
    compiler."""
    newest = max(path.stat().st_mtime for path in SHARED if path.exists())
    stale = [source for source in sorted(set(sources))
             if build.is_stale(program_of(source), binary(source)) or
             binary(source).stat().st_mtime < newest]
    if not stale:
        return []
    if any(source in OBJECTS_OF for source in stale):
        build.shared_library()
    BINARIES.mkdir(parents=True, exist_ok=True)
    nvcc, architecture = build.find_nvcc(), build.target()
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        troubles = workers.map(lambda source: _compile(nvcc, architecture, source), stale)
    return [trouble for trouble in troubles if trouble]


def _compile(nvcc: Path, architecture: str, source: str) -> str:
    """What went wrong; empty when nothing did."""
    home = nvcc.resolve().parent.parent
    in_c = ["gcc", "-std=c11", "-O2", *INCLUDES, "-isystem", str(home / "include")]
    program, made = program_of(source), binary(source)
    try:
        parts: List[str] = []
        for name in PARTS_OF.get(source, ()):
            parts.append(str(BINARIES / f"{source}-{name}.o"))
            build.call([*in_c, "-c", "-o", parts[-1], str(HERE / name)])
        for pattern in OBJECTS_OF.get(source, ()):
            parts += map(str, sorted(build.BUILD.glob(pattern)))
        if program.suffix == ".c":
            build.call([*in_c, "-o", str(made), str(program), *parts, *_driver(home)])
        else:
            build.compile_cuda(nvcc, architecture, program, STATIC, made,
                               [*parts, *INCLUDES, "-lz"] if parts else LIBRARIES_OF.get(source, ()))
    except build.BuildError as error:
        return f"{source}: {error}"
    return ""


def _driver(home: Path) -> List[str]:
    """How a program is linked with the driver: with the toolkit's stub of it, or with this machine's."""
    stubs = sorted(path.parent for path in home.glob("**/stubs/libcuda.so"))
    return [f"-L{stubs[0]}", "-lcuda"] if stubs else ["-l:libcuda.so.1"]


def unpack(works: Iterable[Work]) -> None:
    for work in works:
        if not work.trace:
            continue
        packed, plain = TRACES / work.trace, trace_of(work)
        if not plain.exists() or plain.stat().st_mtime < packed.stat().st_mtime:
            plain.parent.mkdir(parents=True, exist_ok=True)
            plain.write_bytes(gzip.decompress(packed.read_bytes()))


def recorder() -> Path:
    """Builds the recorder and says where it is. The library's own look-up code is part of it."""
    made = FOLDER / "librecord.so"
    FOLDER.mkdir(parents=True, exist_ok=True)
    include = build.find_nvcc().resolve().parent.parent / "include"
    look_up = [build.ROOT / "src" / "lib" / "preload" / name for name in ("dlsym.c", "wrap_lookup.c", "original.c")]
    build.call(["gcc", "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-isystem", str(include),
                f"-I{RECORD}", *INCLUDES, "-o", str(made), str(RECORD / "log.c"),
                str(RECORD / "wrappers.c"), *map(str, look_up), "-Wl,-Bsymbolic-functions", "-ldl", "-pthread"])
    return made
