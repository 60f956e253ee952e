# SPDX-License-Identifier: MIT
"""The tables of docs/TESTING.md: every demand has a row, every test named in a row exists and is run, and every test of
this folder guards something. A guard is written `path:name`, with the path from test/."""
import argparse
import pathlib
import re
import sys

RULES = [f"3.{n}" for n in range(1, 12)]
WEAKNESSES = [f"W{n}" for n in range(1, 27)]
DUTIES = [f"A{n}" for n in range(1, 21)]
SPECIAL = ["flag", "double free", "late record", "second fence", "legacy order"]

GUARD = re.compile(r"`([\w./-]+\.(?:c|py|build)):([\w ]+)`")


def rows(text):
    """Demand to guards, of all table rows that name a guard."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| ") and GUARD.search(line):
            found.setdefault(line.split("|")[1].strip().strip("*"), []).extend(GUARD.findall(line))
    return found


def is_registered(text, suffix, name):
    """Whether the file runs a test of that name: a case of cmocka or unittest, or a line of meson."""
    if suffix == ".c":
        return re.search(rf"[\s,]\w*(?:test|TEST)\w*\({name}\b", text) is not None
    if suffix == ".py":
        return re.search(rf"^    def {name}\(self\)", text, re.MULTILINE) is not None
    return re.search(rf"test\('{re.escape(name)}\b", text) is not None


def is_built(folder, source):
    """Whether the folder's meson.build names the file, by its stem or the part after test_."""
    build = folder / "meson.build"
    stem = source.stem.removeprefix("test_")
    return build.exists() and re.search(rf"'({source.name}|{source.stem}|{stem})'", build.read_text()) is not None


def problems(root):
    page = root / "docs/TESTING.md"
    found = rows(page.read_text())
    for demand in RULES + WEAKNESSES + DUTIES + SPECIAL:
        if not any(re.match(rf"{re.escape(demand)}(?:[ :]|$)", key) for key in found):
            yield f"{page}: no row guards {demand}"
    guards = {guard for row in found.values() for guard in row}
    for path, name in sorted(guards):
        source = root / "test" / path
        if not source.exists():
            yield f"{page}: test/{path} does not exist"
        elif not is_registered(source.read_text(), source.suffix, name):
            yield f"{page}: test/{path} runs no test {name}"
        elif source.suffix != ".build" and not is_built(source.parent, source):
            yield f"{page}: test/{path} is not built"
    for source in sorted((root / "test/unit/rules").glob("test_*.c")):
        for name in re.findall(r"cmocka_unit_test\((\w+)\)", source.read_text()):
            if (f"unit/rules/{source.name}", name) not in guards:
                yield f"{page}: {name} of test/unit/rules/{source.name} guards nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    found = list(dict.fromkeys(problems(parser.parse_args().root)))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
