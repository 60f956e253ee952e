# SPDX-License-Identifier: MIT
import house

COLUMNS_MAX = 100
# Written by scripts, which put a paragraph in one line.
WRITTEN = {"docs/BENCHMARKS.md", "docs/COMMAND.md", "docs/DIFFERENCES.md", "docs/GPU.md", "docs/GPU2.md",
           "docs/OPTIONS.md"}
FENCE = "```"


def pages(tree):
    return [path for path in tree.files(".md") if "/" not in path or path.startswith("docs/")]


def prose(tree, path):
    """(number, text) of each line outside tables and code, which cannot be wrapped."""
    is_code = False
    for number, line in tree.lines(path):
        if line.lstrip().startswith(FENCE):
            is_code = not is_code
        elif not is_code and not line.startswith("|"):
            yield number, line


def check(tree):
    """Pages that are written by hand are wrapped, so that a change shows what it changes."""
    for path in pages(tree):
        if path in WRITTEN:
            continue
        for number, line in prose(tree, path):
            if len(line) > COLUMNS_MAX:
                yield house.Complaint(path, number, f"has {len(line)} columns, more than {COLUMNS_MAX}")


if __name__ == "__main__":
    house.run(check)
