# SPDX-License-Identifier: MIT
import os
import platform
import re
import subprocess
import tempfile

import commands
import house

VERSION = "2.10"
# What it is not asked, and why.
SILENT = {
    "constParameter": "opaque handles are pointers that are passed on; clang-tidy asks the same and knows them",
    "unusedStructMember": "it loses variables that have an attribute before their type",
}
OPTIONS = ["--quiet", "--std=c11", "--enable=warning,style,performance,portability", "--inline-suppr",
           # Without a machine's macro it takes the branch for unknown machines.
           f"-D__{platform.machine()}__=1", "--template={file}:{line}: {message} [{id}]"]
SHOWN = re.compile(r"^(.+?):(\d+): (.*)$")


def check(tree):
    """cppcheck finds nothing in the library's sources and the simulated device's."""
    tool = house.find_tool("cppcheck", VERSION, "cppcheck")
    with tempfile.TemporaryDirectory() as folder:
        commands.write(tree, tree.files(".c", under="src"), folder)
        project = os.path.join(folder, "compile_commands.json")
        silent = [f"--suppress={name}" for name in SILENT]
        result = subprocess.run([tool, *OPTIONS, *silent, f"--project={project}"], text=True, check=True,
                                stderr=subprocess.PIPE)
    for match in filter(None, map(SHOWN.match, result.stderr.splitlines())):
        absolute, line, text = match.groups()
        path = os.path.relpath(absolute, tree.root)
        if not path.startswith(".."):
            yield house.Complaint(path, int(line), text)


if __name__ == "__main__":
    house.run(check)
