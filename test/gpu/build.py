# SPDX-License-Identifier: MIT
"""Builds what the GPU suites need: the library with Meson, in release mode, the CUDA programs with nvcc, and
the programs of the driver API with gcc."""
from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterable, List, Sequence, Tuple

import device
from catalogue import CONFORMANCE_SOURCES, DIRECT, DRIVER, PER_THREAD, SHARED, TRUTHS, Program

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build-gpu"
PROGRAMS = BUILD / "gpu-programs"
LIBRARY = BUILD / "libvpmm.so"
DEFAULT_ARCHITECTURE = "sm_90"

# Command -> how to get it.
TOOLS = {
    "meson": "apt-get install meson, or pip install meson",
    "ninja": "apt-get install ninja-build, or pip install ninja",
    "gcc": "apt-get install gcc",
}


class BuildError(Exception):
    """What could not be built, and what the tool said."""


def find_nvcc() -> Path:
    """From CUDA_HOME, the path, or where the toolkit is usually installed."""
    places = [os.environ.get("CUDA_HOME", "") + "/bin/nvcc", shutil.which("nvcc") or "", "/usr/local/cuda/bin/nvcc"]
    for place in places:
        if place and os.access(place, os.X_OK):
            return Path(place)
    raise BuildError("no nvcc: install the CUDA toolkit, or set CUDA_HOME to the folder that holds bin/nvcc")


def shared_library() -> Path:
    """Builds the library and says where it is."""
    for tool, how in TOOLS.items():
        if shutil.which(tool) is None:
            raise BuildError(f"no {tool}: {how}")
    if not (BUILD / "build.ninja").exists():
        call(["meson", "setup", str(BUILD), str(ROOT), "--buildtype=release", "-Dtests=disabled", "-Ddemo=false"])
    call(["ninja", "-C", str(BUILD)])
    if not LIBRARY.exists():
        raise BuildError(f"the build made no {LIBRARY}")
    return LIBRARY


def binary(program: Program) -> Path:
    prefix = f"{program.part}-" if program.differs_as else ""
    return PROGRAMS / f"{prefix}{program.source}.{program.cudart}"


def source_of(program: Program) -> Path:
    if program.cudart == DRIVER:
        return TRUTHS / f"{program.source}.c"
    if program.differs_as:
        return CONFORMANCE_SOURCES / f"{program.source}.{'c' if program.cudart == DIRECT else 'cu'}"
    if program.cudart:
        return HERE / "programs" / f"{program.source}.cu"
    return HERE / "python" / f"{program.source}.py"


def programs(selected: Iterable[Program]) -> int:
    """Compiles the CUDA programs that are not up to date, many at a time; says how many it compiled."""
    wanted = sorted({(source_of(p), p.cudart, binary(p)) for p in selected if p.cudart})
    stale = [entry for entry in wanted if is_stale(entry[0], entry[2])]
    if not stale:
        return 0
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    nvcc, architecture = find_nvcc(), target()
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        list(workers.map(lambda entry: _compile(nvcc, architecture, entry), stale))
    return len(stale)


def target() -> str:
    """The architecture to compile for: this machine's, or the usual one where there is no device."""
    return device.architecture() if device.count() else DEFAULT_ARCHITECTURE


def is_stale(source: Path, made: Path) -> bool:
    """Whether a program has to be made again from its source and the headers beside it."""
    if not made.exists():
        return True
    folders = (source.parent, HERE / "programs", TRUTHS)
    headers = [path for folder in folders for suffix in ("*.cuh", "*.h") for path in folder.glob(suffix)]
    return made.stat().st_mtime < max(path.stat().st_mtime for path in (source, *headers))


def _compile(nvcc: Path, architecture: str, entry: Tuple[Path, str, Path]) -> None:
    source, cudart, made = entry
    if cudart in (DRIVER, DIRECT):
        home = nvcc.resolve().parent.parent
        stubs = sorted({path.parent for path in home.glob("**/stubs/libcuda.so")})
        links = [f"-L{stubs[0]}", "-lcuda"] if stubs else ["-l:libcuda.so.1"]
        call(["gcc", "-std=c11", "-O1", "-isystem", str(home / "include"), "-o", str(made), str(source),
              *links, "-ldl", "-pthread"])
    else:
        compile_cuda(nvcc, architecture, source, cudart, made)


def compile_cuda(
    nvcc: Path, architecture: str, source: Path, cudart: str, made: Path, parts: Sequence[object] = ()
) -> None:
    """One program with the runtime linked as `cudart` says, and with what `parts` adds to the command."""
    call([str(nvcc), "-std=c++17", "-O2", f"-arch={architecture}", "-Xcompiler", "-Wall,-Wextra",
          *_link_options(nvcc, cudart), "-o", str(made), str(source), *map(str, parts)])


def _link_options(nvcc: Path, cudart: str) -> List[str]:
    if cudart == PER_THREAD:
        return ["-cudart", "static", "--default-stream", "per-thread"]
    if cudart != SHARED:
        return ["-cudart", "static"]
    home = nvcc.resolve().parent.parent
    for folder in (home / "lib64", *sorted(home.glob("targets/*/lib")), home / "lib"):
        if list(folder.glob("libcudart.so.*")):
            return ["-cudart", "shared", "-Xlinker", f"-rpath={folder}"]
    raise BuildError(f"no libcudart.so below {home}")


def call(command: Sequence[str]) -> None:
    """Runs a tool; what it says is the error when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}")
