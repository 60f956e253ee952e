# SPDX-License-Identifier: MIT
import re
import shutil
import subprocess

import house

VERSION = 14
SHOWN = re.compile(r"^(.+?):(\d+):\d+: error: ")


def find_formatter():
    """Versions disagree about details, so only one of them is asked."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path and f"version {VERSION}." in house.tool_output(path, "--version"):
            return path
    raise house.CannotCheck(f"needs clang-format {VERSION} (apt-get install clang-format-{VERSION})")


def check(tree):
    """The C files are as clang-format writes them."""
    paths = [tree.absolute(path) for path in tree.files(*house.C_SOURCES)]
    result = subprocess.run([find_formatter(), "--dry-run", "-Werror", *paths], text=True, check=False,
                            stderr=subprocess.PIPE)
    found = {match.groups() for match in map(SHOWN.match, result.stderr.splitlines()) if match}
    for absolute, line in sorted(found, key=lambda place: (place[0], int(place[1]))):
        path = absolute.removeprefix(tree.root).lstrip("/")
        yield house.Complaint(path, int(line), "is not as clang-format writes it")


if __name__ == "__main__":
    house.run(check)
