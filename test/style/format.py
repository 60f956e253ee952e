# SPDX-License-Identifier: MIT
import re
import subprocess

import house

VERSION = 14
SHOWN = re.compile(r"^(.+?):(\d+):\d+: error: ", re.MULTILINE)


OFF = re.compile(r"clang-format\s+off")


def find_formatter():
    return house.find_tool("clang-format", VERSION, f"clang-format-{VERSION}")


def check(tree):
    """The C files are as clang-format writes them, all lines of them."""
    paths = [tree.absolute(path) for path in tree.files(*house.C_SOURCES)]
    result = subprocess.run([find_formatter(), "--dry-run", "-Werror", *paths], text=True, check=False,
                            stderr=subprocess.PIPE)
    if result.returncode and not SHOWN.search(result.stderr):
        raise house.ToolFailed(result.stderr)
    found = {match.groups() for match in map(SHOWN.match, result.stderr.splitlines()) if match}
    for absolute, line in sorted(found, key=lambda place: (place[0], int(place[1]))):
        path = absolute.removeprefix(tree.root).lstrip("/")
        yield house.Complaint(path, int(line), "is not as clang-format writes it")
    for path in tree.files(*house.C_SOURCES):
        for number, line in tree.lines(path):
            if OFF.search(line):
                yield house.Complaint(path, number, "switches clang-format off")


if __name__ == "__main__":
    house.run(check)
