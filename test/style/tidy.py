# SPDX-License-Identifier: MIT
import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import commands
import house

VERSION = 14
# The analyzer's default is 225,000 states a function, which a few long functions use up without a
# finding: three quarters of the time.
STATES_MAX = 75000
SHOWN = re.compile(r"^(/?[^\s:].*?):(\d+):\d+: (?:warning|error): (.*)$", re.MULTILINE)


def examine(tool, folder, path):
    """What clang-tidy shows about one source: (path shown, line, text)."""
    limit = [f"--extra-arg={word}"
             for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={STATES_MAX}")]
    result = subprocess.run([tool, "--quiet", *limit, "-p", folder, path], text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = SHOWN.findall(result.stdout)
    if (result.returncode and not found) or "Error parsing" in result.stderr:
        raise house.ToolFailed(f"{tool} {path}: {result.stdout}{result.stderr}")
    return found


def check(tree):
    """clang-tidy finds nothing in the C sources; .clang-tidy of each folder says what it looks for."""
    tool = house.find_tool("clang-tidy", VERSION, f"clang-tidy-{VERSION}")
    paths = tree.files(".c", under="src") + tree.files(".c", under="test")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        commands.write(tree, paths, folder)
        found = pool.map(lambda path: examine(tool, folder, tree.absolute(path)), paths)
        places = {(commands.place(tree, shown), int(line), text) for each in found for shown, line, text in each}
    for path, line, text in sorted(places):
        yield house.Complaint(path, line, text)


if __name__ == "__main__":
    house.run(check)
