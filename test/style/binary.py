# SPDX-License-Identifier: MIT
import functools
import os
import re

import house
import layers

LIBRARY = "libvpmm.so"
API = "src/lib/preload/api.def"
# The one name of our own that it exports.
INTERFACE = "vpmm_interface_1"
NEEDED = re.compile(r"^(?:libc\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux[-\w]*\.so\.\d)$")
# Sources that may have variables of their own.
VARIABLES = {
    "src/lib/preload/entry.c": "the composition root",
    "src/lib/preload/original.c": "the originals, found once",
    "src/lib/preload/wrap_work.c": "whether the program may have a blocking stream",
    "src/lib/observe/log.c": "the level, the count of warnings, and what became of standard error",
    "src/lib/preload/wrap_ipc.c": "whether the warning of shared extents was given",
    "src/lib/preload/signals.c": "what a handler must find: it is handed a number",
    "src/lib/base/lock.c": "the ranks a thread holds, where assertions are on",
    "src/lib/order/order_stream.c": "a thread's number",
    "src/lib/order/memo.c": "what a thread remembers of streams",
}
# It has a process of its own.
COMMAND = "src/tools/cli/"
# NAME TYPE ADDRESS OFFSET SIZE ENTRY FLAGS of a section that is loaded and may be written to.
VARIABLE_SECTION = re.compile(r"\]\s(\S+)\s+\S+\s+[0-9a-f]+\s+[0-9a-f]+\s+([0-9a-f]+)\s+[0-9a-f]+\s+WA\w*\s")
NO_VARIABLES = (".data.rel.ro", ".init_array", ".fini_array")
# What the pool may call besides itself and base: string.h, assert and the compiler's own support. Fortified spellings
# count as the plain ones.
POOL_CALLS = {"memcpy", "memset", "memmove", "memcmp", "__assert_fail", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_",
              "__popcountdi2"}
BASE_NOT_FOR_POOL = re.compile(r"^vpmm_(?:lock_|memory_system|now_)")
# Folders of the command, which is no part of the library: it looks names up as any program does.
COMMAND_FOLDERS = ("src/tools/",)
# What no other source of the library uses, and why it is there all the same.
UNCALLED = {
    "vpmm_bytes_add": "checked arithmetic stands together",
    "vpmm_bytes_multiply": "checked arithmetic stands together",
    "vpmm_dlsym_choose": "the assembly beside it calls it",
    "vpmm_host_room_of": "tests describe a system with it",
    "vpmm_heap_audit": "tests look at every invariant with it",
    "vpmm_order_totals": "tests count events and fences with it",
    "vpmm_trace_open": "benchmarks open traces by their names with it",
}
# A relocation of code against a symbol: TYPE, VALUE and NAME end the line.
CODE_RELOCATION = re.compile(r"^[0-9a-f]+\s+[0-9a-f]+\s+R_\S+\s+[0-9a-f]+\s+(\w+)")


def line_of(tree, path, word):
    return next((number for number, line in tree.lines(path) if re.search(rf"\b{re.escape(word)}\b", line)), 1)


def intercepted(tree):
    """The names of others that the library is to export, from the one list."""
    text = house.without_comments(tree.read(API))
    both = re.findall(r"^VPMM_(?:API|STREAM)_BOTH\((\w+)", text, re.MULTILINE)
    names = {f"cu{stem}{spelling}" for stem in both for spelling in ("", "_ptsz")}
    return {"dlsym"} | names | set(re.findall(r"^VPMM_(?:API|STREAM)\((\w+)", text, re.MULTILINE))


def wanted(tree):
    """All that it is to export."""
    return intercepted(tree) | {INTERFACE}


def check_exports(tree):
    """The library exports exactly the names of api.def, dlsym and its own, and no cuda name at all."""
    output = house.tool_output("nm", "-D", "--defined-only", os.path.join(tree.build, LIBRARY))
    exported = {row.split()[-1].split("@")[0] for row in output.splitlines()}
    for name in sorted(exported - wanted(tree)):
        yield house.Complaint(API, 1, f"{name} is exported and not on the list")
    for name in sorted(wanted(tree) - exported):
        yield house.Complaint(API, line_of(tree, API, name), f"{name} is on the list and not exported")
    for name in sorted(name for name in exported if name.startswith("cuda")):
        yield house.Complaint(API, 1, f"{name}: no name of the runtime may be exported")


def check_needed(tree):
    """The library needs libc and nothing else; it never pulls in a driver or a runtime."""
    output = house.tool_output("readelf", "-d", os.path.join(tree.build, LIBRARY))
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", output):
        if not NEEDED.match(name):
            yield house.Complaint("src/lib/preload/meson.build", 1, f"the library needs {name}")
    for name in sorted(symbols(os.path.join(tree.build, LIBRARY), "-D", "--undefined-only")):
        if name.startswith(("cu", "nv")):
            yield house.Complaint("src/lib/preload/meson.build", 1, f"the library leaves {name} to whoever loads it")


def check_variables(tree):
    """Only the named sources have variables; the core has none."""
    for source, path in tree.objects():
        for section, size in VARIABLE_SECTION.findall(house.tool_output("readelf", "-SW", path)):
            is_free = source in VARIABLES or source.startswith(COMMAND)
            if int(size, 16) and not section.startswith(NO_VARIABLES) and not is_free:
                yield house.Complaint(source, 1, f"has {int(size, 16)} bytes of variables in {section}")


@functools.lru_cache(maxsize=None)
def symbols(path, *options):
    return {row.split()[-1] for row in house.tool_output("nm", *options, path).splitlines()}


def check_pool(tree):
    """The pool calls itself, base and memcpy: no lock, no driver, no clock, no allocator."""
    objects = tree.objects()
    own = set(owners(entry for entry in objects if house.folder_of(entry[0]) in ("pool", "base")))
    for source, path in objects:
        for name in sorted(symbols(path, "--undefined-only") if house.folder_of(source) == "pool" else ()):
            plain = re.sub(r"^__(\w+)_chk$", r"\1", name)
            if (plain not in POOL_CALLS and name not in own) or BASE_NOT_FOR_POOL.match(name):
                yield house.Complaint(source, 1, f"the pool must not use {name}")


def owners(objects):
    """{name: source} of what sources define for others."""
    return {name: source for source, path in objects for name in symbols(path, "--defined-only", "--extern-only")}


def check_folders(tree):
    """A folder uses nothing of a folder that it may not include, however it came by the declaration."""
    objects = tree.objects()
    owner = owners(objects)
    for source, path in objects:
        folder = house.folder_of(source)
        allowed = {header.split("/")[0] for header in layers.MAY_INCLUDE[folder] if header != "driver/driver.h"}
        foreign = {"dlsym"} if source.startswith(COMMAND_FOLDERS) else set()
        for name in sorted((symbols(path, "--undefined-only") - foreign) & set(owner)):
            other = house.folder_of(owner[name])
            if other not in allowed | {folder}:
                yield house.Complaint(source, line_of(tree, source, name),
                                      f"{folder} must not use {name} of {other}")


def check_use(tree):
    """Whatever a source defines for others, another source uses."""
    objects = tree.objects("cli", "replay", "trace")
    used = {name for _, path in objects for name in symbols(path, "--undefined-only")}
    for name, source in sorted(owners(objects).items()):
        if name not in used | wanted(tree) | {"main", *UNCALLED}:
            yield house.Complaint(source, line_of(tree, source, name),
                                  f"{name} is used by no other source: make it static, or delete it")


def code_relocations(path):
    """Names of symbols that the object's code refers to. Tables of addresses are no calls."""
    in_code = False
    for row in house.tool_output("readelf", "-rW", path).splitlines():
        if row.startswith("Relocation section"):
            in_code = "'.rela.text" in row
        match = CODE_RELOCATION.match(row)
        if in_code and match:
            yield match.group(1)


def check_overrides(tree):
    """No code of ours calls a name that we intercept: the call could come back to us."""
    names = intercepted(tree)
    for source, path in tree.objects():
        if source.startswith(COMMAND_FOLDERS):
            continue
        for name in sorted(names & set(code_relocations(path))):
            yield house.Complaint(source, 1, f"calls {name}, which the library itself intercepts")


def check(tree):
    """What the library exports, needs, keeps and calls."""
    for part in (check_exports, check_needed, check_variables, check_pool, check_folders, check_use, check_overrides):
        yield from part(tree)


if __name__ == "__main__":
    house.run(check)
