# SPDX-License-Identifier: MIT
import re

import house

# What a folder may include besides itself: another folder (its facade), or one header of it.
MAY_INCLUDE = {
    "base": [],
    "driver": ["base"],
    "pool": ["base"],
    "order": ["base", "driver/driver.h"],
    "heap": ["base", "driver/driver.h", "pool", "order"],
    "small": ["base", "driver/driver.h", "pool", "order", "heap"],
    "offload": ["base", "driver/driver.h"],
    "ipc": ["base", "driver/driver.h"],
    "config": ["base"],
    "observe": ["base"],
    "route": ["base", "driver/driver.h", "pool", "order", "heap", "small", "offload", "config", "observe/log.h"],
    "preload": ["base", "driver/driver.h", "driver/cuda.h", "pool", "order", "heap", "small", "offload", "ipc", "config", "observe",
                "report", "route", "recorder", "vpmm"],
    "sim": ["base", "driver/driver.h"],
    "recorder": ["base", "vpmm"],
    "trace": ["base", "recorder", "vpmm"],
    "report": ["base", "pool", "order", "heap", "small", "offload", "config", "observe", "route", "vpmm"],
    "replay": ["base", "driver/driver.h", "driver/cuda.h", "pool", "order", "heap", "small", "sim", "recorder", "trace"],
    "python": [],
    "api": ["vpmm"],
    "cli": ["base", "config", "observe", "report", "replay", "recorder", "trace", "vpmm"],
}
# The headers of a folder that others may see; base is all facade.
FACADES = {
    "driver": ["driver.h", "cuda.h"],
    "pool": ["pool.h", "pool_cache.h", "pool_export.h"],
    "order": ["order.h", "order_program.h"],
    "heap": ["heap.h", "heap_parts.h"],
    "small": ["small.h"],
    "offload": ["offload.h", "safetensors.h"],
    "ipc": ["appeal.h", "ipc.h"],
    "config": ["config.h"],
    "observe": ["log.h", "observe_dump.h", "observe_stats.h"],
    "route": ["route.h"],
    "recorder": ["format.h", "recorder.h"],
    "trace": ["live.h", "reader.h", "writer.h"],
    "report": ["report.h"],
    "replay": ["replay.h"],
}
# System headers that would break a folder's promise: no CUDA types above the seam, and nothing at all in the pool.
CUDA_FOLDERS = ["driver", "preload", "sim"]
PURE = ["stdbool.h", "stddef.h", "stdint.h", "string.h", "assert.h", "limits.h", "stdatomic.h"]
DIRECTIVE = re.compile(r"^\s*#\s*(?:include|include_next|import)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def quoted_problem(folder, header):
    target, _, name = header.partition("/")
    if not name:
        return f'"{header}" is not qualified by its folder'
    if target == folder:
        return None
    if target not in MAY_INCLUDE[folder] and header not in MAY_INCLUDE[folder]:
        return f'{folder} must not include "{header}"'
    if name not in FACADES.get(target, [name]):
        return f'"{header}" is private to {target}'
    return None


def system_problem(path, folder, header):
    if header.split("/")[0] in MAY_INCLUDE:
        return f"<{header}> is ours: it is included in quotes"
    if header.startswith("cuda") and (folder not in CUDA_FOLDERS or path == "src/lib/driver/driver.h"):
        return f"{path.removeprefix('src/')} must not know CUDA's types: <{header}>"
    if folder == "pool" and header not in PURE:
        return f"the pool is pure and must not include <{header}>"
    return None


def include_problem(path, folder, line):
    match = INCLUDE.match(line)
    if not match:
        return "an include must name its header plainly"
    quoted, system = match.groups()
    return quoted_problem(folder, quoted) if quoted else system_problem(path, folder, system)


def check(tree):
    """Folders include only what lies below them, and of that only the facade."""
    for path in tree.files(under="src"):
        if path == "src/meson.build":
            continue
        folder = house.folder_of(path)
        if folder not in MAY_INCLUDE:
            yield house.Complaint(path, 1, f"the folder {folder} has no place in the order of layers")
            continue
        for number, line in tree.code_lines(path):
            problem = include_problem(path, folder, line) if DIRECTIVE.match(line) else None
            if problem:
                yield house.Complaint(path, number, problem)


if __name__ == "__main__":
    house.run(check)
