# SPDX-License-Identifier: MIT
import re

import house

ONLY_SITE = "src/lib/config/config.c"
# The simulated device and the command are no part of the library.
OTHERS = ("src/tools/sim/", "src/tools/cli/", "src/tools/trace/input.c")
READS = re.compile(r"\b(?:(?:__)?(?:secure_)?getenv|_{0,2}environ)\b")
WRITES = re.compile(r"\b(?:setenv|unsetenv|putenv|clearenv)\b")


def check(tree):
    """The library reads the environment at one place and writes it nowhere."""
    sites = []
    for path in tree.files(under="src"):
        if not path.startswith(OTHERS):
            for number, line in tree.code_lines(path):
                if WRITES.search(line):
                    yield house.Complaint(path, number, "the program's environment is not ours to change")
                if READS.search(line):
                    sites.append((path, number))
    allowed = [site for site in sites if site[0] == ONLY_SITE][:1]
    for path, number in sites:
        if (path, number) not in allowed:
            yield house.Complaint(path, number, f"the environment is read once, in {ONLY_SITE}")


if __name__ == "__main__":
    house.run(check)
