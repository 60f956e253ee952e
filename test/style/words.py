# SPDX-License-Identifier: MIT
import re

import house

LICENCE = "SPDX-License-Identifier: MIT"
LICENSED = (".c", ".h", ".cu", ".cuh", ".def", ".py", ".sh")
# Written so that no pattern finds itself.
FORBIDDEN = [
    (r"\bTO[D]O\b|\bFIX[M]E\b|\bXX[X]\b", "says that something is left to do: do it, or open an issue"),
    (r"/wor[k]/|/hom[e]/\w|/roo[t]/", "names a path of one machine"),
    (r"\bshare[d]/(?:[A-Z]|seeds|hooks|traces)", "names a folder that is not in the repository"),
    (r"\bpyp[i]\.org|\bpythonhoste[d]\b|\bdeb\.debia[n]\.org|\barchive\.ubunt[u]\.com|index-ur[l]",
     "names a package registry: whoever runs it has their own configured"),
    (r"[^\S\n]+$", "ends in white space"),
    (r"^(?:<{7}|>{7}|={7})(?:\s|$)", "is left over from a merge"),
]
PATTERNS = [(re.compile(pattern), text) for pattern, text in FORBIDDEN]
# Recorded output: what it says is not ours to choose.
RECORDED = ("test/programs/expected/", "test/bench/results/")
COMPRESSED = ".gz"
# What stands between the licence line and the code of a source: from the second line to the end of the comment.
OPENING = re.compile(r"[^\n]*\n/\*(.*?)\*/", re.DOTALL)
FORBIDS = re.compile(r"\bmust\s+(?:\*\s+)?not\b", re.IGNORECASE)


def needs_licence(tree, path):
    return path.endswith(LICENSED) or tree.read(path).startswith("#!")


def check_opening(tree, path):
    opening = OPENING.match(tree.read(path))
    if not opening:
        yield house.Complaint(path, 2, "the second line must begin a comment: what the file does, and what it must not do")
    elif path.endswith(".c") and not FORBIDS.search(opening[1]):
        yield house.Complaint(path, 2, "the opening comment does not say what the file must not do")


def check(tree):
    """Every source names its licence and, below src, its job; none names machines, registries or things left to do."""
    for path in tree.files():
        if path.startswith(RECORDED) or path.endswith(COMPRESSED):
            continue
        if needs_licence(tree, path) and LICENCE not in "".join(tree.read(path).splitlines(True)[:2]):
            yield house.Complaint(path, 1, f"the first line must hold {LICENCE}")
        if path.startswith("src/") and path.endswith((".c", ".h")):
            yield from check_opening(tree, path)
        for number, line in tree.lines(path):
            for pattern, text in PATTERNS:
                if pattern.search(line):
                    yield house.Complaint(path, number, text)


if __name__ == "__main__":
    house.run(check)
