# SPDX-License-Identifier: MIT
"""What the style checks share: the tree and its files, C text without comments, tools, and how a check ends.

A check is a function that takes a Tree and yields complaints; house.run() makes a command of it. Exit status: 0 nothing to
complain about, 1 complaints (each names file and line), 77 cannot be checked here."""
import argparse
import os
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

FOLDERS = ["src", "include", "test", "scripts", "docs", ".ci"]
C_SOURCES = (".c", ".h")
# Folders that no part of libvpmm.so is made of: what is built beside it.
BESIDE = {"api", "cli", "replay", "sim", "trace"}
SKIP = 77


def folder_of(path):
    """Whose source it is: src/lib/pool/free.c and src/tools/sim/free.c are pool's and sim's, src/api/api.c is api's."""
    parts = path.split("/")[1:]
    return parts[parts[0] in ("lib", "tools")]


class Complaint(NamedTuple):
    path: str
    line: int
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


class CannotCheck(Exception):
    """A tool is missing; the text names it and how to get it."""


class ToolFailed(Exception):
    """A tool that ended badly without a complaint about a file."""


class Tree:
    """A checkout, and the build folder that holds its objects. Paths are relative to the checkout."""

    def __init__(self, root, build=None, cuda_headers=None):
        self.root, self.build, self.cuda_headers = root, build, cuda_headers

    def files(self, *suffixes, under=None):
        """All files of ours in path order that end in one of `suffixes` (any, when none is given)."""
        found = [] if under else [name for name in os.listdir(self.root)
                                  if os.path.isfile(self.absolute(name)) and name != ".git"]
        for folder in [under] if under else FOLDERS:
            for where, folders, names in os.walk(self.absolute(folder)):
                folders[:] = [name for name in folders if name != "__pycache__"]
                found += [os.path.relpath(os.path.join(where, name), self.root) for name in names]
        return sorted(path for path in found if not suffixes or path.endswith(suffixes))

    def absolute(self, path):
        return os.path.join(self.root, path)

    def read(self, path):
        with open(self.absolute(path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def lines(self, path):
        """(number, text) of each line."""
        return enumerate(self.read(path).splitlines(), 1)

    def code_lines(self, path):
        """The same for C, comments blanked out."""
        return enumerate(without_comments(self.read(path)).splitlines(), 1)

    def objects(self, *beside):
        """(source, object) of everything that libvpmm.so is made of, and of these folders beside it."""
        left_out = BESIDE - set(beside)
        top = os.path.join(self.build, "src")
        found = []
        for product in ("libvpmm.so.p", "vpmm.p"):
            folder = os.path.join(self.build, product)
            for name in sorted(os.listdir(folder) if os.path.isdir(folder) else ()):
                parts = name.removesuffix(".o").split("_", 3)
                source = "/".join(parts)
                if name.endswith(".c.o") and len(parts) == 4 and folder_of(source) not in left_out:
                    found.append((source, os.path.join(folder, name)))
        for where, _, names in sorted(os.walk(top)):
            parts = os.path.relpath(where, top).split(os.sep)
            folder = "/".join(parts[:1 + (parts[0] in ("lib", "tools"))])
            found += [(f"src/{folder}/{name.removesuffix('.o')}", os.path.join(where, name)) for name in sorted(names)
                      if name.endswith(".c.o") and folder_of(f"src/{folder}/{name}") not in left_out]
        missing = {folder_of(path) for path in self.files(".c", under="src")} - left_out
        missing -= {folder_of(source) for source, _ in found}
        if missing:
            raise ToolFailed(f"no objects of {', '.join(sorted(missing))} below {top}")
        return found


def without_comments(text):
    """C text whose comments are spaces; strings and line numbers stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)

    def blank(match):
        is_comment = match.group().startswith("/")
        return re.sub(r"[^\n]", " ", match.group()) if is_comment else match.group()

    return token.sub(blank, text)


def tool_output(*command):
    """What the command prints; a command that fails is an error of the check."""
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def find_tool(name, version, package):
    """Versions disagree about details, so only one of them is asked."""
    for spelling in (f"{name}-{version}", name):
        path = shutil.which(spelling)
        if path and re.search(rf"(?:version|Cppcheck) {version}\b", tool_output(path, "--version")):
            return path
    raise CannotCheck(f"needs {name} {version} (apt-get install {package})")


def run(check):
    parser = argparse.ArgumentParser(description=check.__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--build")
    parser.add_argument("--cuda-headers")
    arguments = parser.parse_args()
    try:
        complaints = list(check(Tree(arguments.root, arguments.build, arguments.cuda_headers)))
    except CannotCheck as reason:
        print(f"not checked: {reason}")
        sys.exit(SKIP)
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)
