# SPDX-License-Identifier: MIT
"""guards.txt beside this file: every demand has a guard, every guard exists and is run, and every
test of this folder guards something."""
import argparse
import pathlib
import re
import sys

RULES = [f"3.{n}" for n in range(1, 15)]
WEAKNESSES = [f"W{n}" for n in range(1, 27)]
DUTIES = [f"A{n}" for n in range(1, 21)]
SPECIAL = ["flag", "double free", "late record", "second fence", "legacy order"]
TABLE = "test/unit/rules/guards.txt"

GUARD = re.compile(r"    ([\w./-]+\.(?:c|py|build)):(\S.*)")


class Malformed(Exception):
    """A line that is neither a demand nor a guard of one; the text says where."""


def demands(text):
    """{demand: [(file, test)]}."""
    found, guards = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        guard = GUARD.fullmatch(line)
        if guard and guards is not None:
            guards.append(guard.groups())
        elif line[:1].isspace():
            raise Malformed(f"{TABLE}:{number}: neither a demand nor a guard of one")
        elif line and not line.startswith("#"):
            if line in found:
                raise Malformed(f"{TABLE}:{number}: this demand stands twice")
            guards = found[line] = []
    return found


def is_registered(text, suffix, name):
    """Whether the file runs a test of that name: a case of cmocka or unittest, or a line of meson."""
    if suffix == ".c":
        return re.search(rf"[\s,]\w*(?:test|TEST)\w*\({name}\b", text) is not None
    if suffix == ".py":
        return re.search(rf"^    def {name}\(self\)", text, re.MULTILINE) is not None
    return re.search(rf"test\('?{re.escape(name)}", text) is not None


def is_built(folder, source):
    """Whether the folder's meson.build names the file, by its stem or the part after test_."""
    build = folder / "meson.build"
    stem = source.stem.removeprefix("test_")
    return build.exists() and re.search(rf"'({source.name}|{source.stem}|{stem})'", build.read_text()) is not None


def problems(root):
    try:
        found = demands((root / TABLE).read_text())
    except Malformed as malformed:
        yield str(malformed)
        return
    for demand in RULES + WEAKNESSES + DUTIES + SPECIAL:
        if not any(re.match(rf"{re.escape(demand)}(?:[ :]|$)", line) for line in found):
            yield f"{TABLE}: nothing guards {demand}"
    for demand in (demand for demand, guards in found.items() if not guards):
        yield f"{TABLE}: nothing guards '{demand}'"
    guards = {guard for some in found.values() for guard in some}
    for path, name in sorted(guards):
        source = root / "test" / path
        if not source.exists():
            yield f"{TABLE}: test/{path} does not exist"
        elif not is_registered(source.read_text(), source.suffix, name):
            yield f"{TABLE}: test/{path} runs no test {name}"
        elif source.suffix != ".build" and not is_built(source.parent, source):
            yield f"{TABLE}: test/{path} is not built"
    for source in sorted((root / "test/unit/rules").glob("test_*.c")):
        for name in re.findall(r"cmocka_unit_test\((\w+)\)", source.read_text()):
            if (f"unit/rules/{source.name}", name) not in guards:
                yield f"{TABLE}: {name} of {source.name} guards nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    found = list(dict.fromkeys(problems(parser.parse_args().root)))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
