# SPDX-License-Identifier: MIT
import re

import house

ONLY_SITE = "src/config/config.c"
READS = re.compile(r"\b(?:(?:secure_)?getenv|environ|__environ|setenv|putenv)\b")


def check(tree):
    """The library reads the environment in one file and writes it nowhere. (The simulated device is no part of it.)"""
    for path in tree.files(*house.C_SOURCES, under="src"):
        if path != ONLY_SITE and not path.startswith("src/sim/"):
            for number, line in tree.code_lines(path):
                if READS.search(line):
                    yield house.Complaint(path, number, f"the environment is read in {ONLY_SITE} and nowhere else")


if __name__ == "__main__":
    house.run(check)
