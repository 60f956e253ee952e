# SPDX-License-Identifier: MIT
"""The list of deliberate bugs: reading it, checking it, and planting one in a text.

A list file holds mutants, one a paragraph; a line that begins with # is a comment:

    a-fence-is-published-before-its-record
    rule 3.4
    file src/order/record.c
    test rules/rules_fences
     a line around it, unchanged
    -    what is replaced
    +    what stands there instead

The name is a sentence with hyphens. `rule` is a rule, an invariant or a section of docs/DESIGN.md. `test` is
suite/test, or a suite for all of its tests; of several, each on a line of its own, the first that fails ends it. What
follows is one hunk or more, parted by @@: the old lines, whole and in sequence, stand exactly once in the file. Two
more words may be given: `hangs yes` for a bug that only a time-out can show, and `expect REGEX` for what the test's
output must hold."""
import pathlib
import re
from typing import List, NamedTuple, Optional

# What DESIGN.md demands in numbered sentences, and the folders of the product: each of these needs a mutant.
DEMANDS = ["3.%d" % n for n in range(1, 12)] + ["4.%d" % n for n in range(1, 7)]
FOLDERS = ["base", "driver", "pool", "order", "heap", "route", "preload", "config", "observe", "ipc", "trace", "replay"]
SECTION = re.compile(r"[1-8](\.\d+)?$")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+){2,}$")
WORDS = ("rule", "file", "test", "hangs", "expect")


class BadList(Exception):
    """The list is wrong; the text says where and why."""


class DoesNotApply(Exception):
    """The old text is not there exactly once."""


class Hunk(NamedTuple):
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    rule: str
    file: str
    tests: List[str]
    hunks: List[Hunk]
    hangs: bool = False
    expect: Optional[str] = None


def hunk_of(lines):
    old = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
    new = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
    return Hunk(old, new)


def hunks_of(lines):
    parts = [[]]
    for line in lines:
        if line == "@@":
            parts.append([])
        else:
            parts[-1].append(line)
    return [hunk_of(part) for part in parts]


def is_hunk_line(line):
    return line[0] in " -+" or line == "@@"


def mutant_of(lines, where):
    """One paragraph."""
    name, rest = lines[0], lines[1:]
    pairs = [line.split(" ", 1) for line in rest if not is_hunk_line(line) and " " in line]
    words = dict(pairs)
    hunks = hunks_of([line for line in rest if is_hunk_line(line)])
    if not NAME.match(name):
        raise BadList("%s: %s is no sentence with hyphens" % (where, name))
    unknown = [line for line in rest if not is_hunk_line(line) and line.split(" ")[0] not in WORDS]
    missing = [word for word in WORDS[:3] if word not in words]
    if unknown or missing:
        raise BadList("%s: %s: %s" % (where, name, "not understood: " + unknown[0] if unknown else "no " + missing[0]))
    if not SECTION.match(words["rule"]):
        raise BadList("%s: %s: DESIGN.md has no %s" % (where, name, words["rule"]))
    if any(not hunk.old or hunk.old == hunk.new for hunk in hunks):
        raise BadList("%s: %s: a hunk changes nothing" % (where, name))
    tests = [value for word, value in pairs if word == "test"]
    return Mutant(name, words["rule"], words["file"], tests, hunks, words.get("hangs") == "yes", words.get("expect"))


def parse(text, where):
    """The mutants of one list file."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    paragraphs = [[]]
    for line in lines:
        if line:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [mutant_of(paragraph, where) for paragraph in paragraphs if paragraph]


def read_lists(folder):
    """All mutants of the folder's *.list files."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*.list")):
        found += parse(path.read_text(encoding="utf-8"), path.name)
    names = [mutant.name for mutant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadList("%s is there twice" % twice[0])
    return found


def plant(text, mutant):
    """The text of the mutant's file with the bug in it."""
    for hunk in mutant.hunks:
        places = [match.start() for match in re.finditer("^" + re.escape(hunk.old), text, re.MULTILINE)]
        if len(places) != 1:
            line = hunk.old.strip().splitlines()[0].strip()
            raise DoesNotApply("%s has %d times: %s" % (mutant.file, len(places), line))
        text = text[:places[0]] + hunk.new + text[places[0] + len(hunk.old):]
    return text


def complaints(mutants, root):
    """What is wrong with the list as a whole: a mutant that does not apply, a demand or a folder without one."""
    for mutant in mutants:
        path = pathlib.Path(root, mutant.file)
        try:
            plant(path.read_text(encoding="utf-8") if path.is_file() else "", mutant)
        except DoesNotApply as reason:
            yield "%s: %s" % (mutant.name, reason)
    for demand in DEMANDS:
        if not any(mutant.rule == demand for mutant in mutants):
            yield "no mutant breaks %s" % demand
    for folder in FOLDERS:
        if not any(mutant.file.startswith("src/%s/" % folder) for mutant in mutants):
            yield "no mutant is planted in src/%s" % folder


def ordered(mutants):
    """By the rule they break, then by name."""
    return sorted(mutants, key=lambda mutant: ([int(n) for n in mutant.rule.split(".")], mutant.name))


def table(mutants):
    """In Markdown."""
    rows = ["| bug | breaks | caught by |", "|---|---|---|"]
    for mutant in ordered(mutants):
        tests = " ".join("`%s`" % test for test in mutant.tests)
        rows.append("| %s | %s | %s |" % (mutant.name.replace("-", " "), mutant.rule, tests))
    return "\n".join(rows) + "\n"


def holds_table(page, mutants):
    """Whether the page has the table, with nothing missing and nothing more."""
    before, found, after = page.partition(table(mutants))
    return bool(found) and before.endswith("\n\n") and not after.startswith("|")
