# SPDX-License-Identifier: MIT
"""How the build compiles each C source, for tools that read a compile_commands.json."""
import json
import os
import shlex

import house


def built(tree):
    """{path: entry} of the sources that the build compiles: of each the first command, its path made absolute."""
    with open(os.path.join(tree.build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        absolute = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        found.setdefault(os.path.relpath(absolute, tree.root), {**entry, "file": absolute})
    return found


def plain(tree, path):
    """For a source that a test compiles by itself."""
    command = ["cc", "-std=c11", *("-I" + tree.absolute(path) for path in ("src/lib", "src/tools", "include"))]
    if tree.cuda_headers:
        command += ["-isystem", tree.cuda_headers]
    return {"directory": tree.root, "file": tree.absolute(path),
            "command": shlex.join([*command, "-c", tree.absolute(path)])}


def write(tree, paths, folder):
    """Writes the commands of `paths` into `folder`/compile_commands.json."""
    known = built(tree)
    entries = [known.get(path) or plain(tree, path) for path in paths]
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(entries, file)


def place(tree, shown):
    """The path in the tree of a path that a tool shows, which may be relative to the build folder."""
    return os.path.relpath(os.path.normpath(os.path.join(tree.build, shown)), tree.root)
