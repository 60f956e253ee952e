# SPDX-License-Identifier: MIT
"""The list of deliberate bugs: reads it, checks it, and plants one bug in a text.

A list file holds mutants, one a paragraph. A line that begins with # is a comment:

    a-zombie-has-no-fence
    rule 3.6
    in src/lib/pool/commit.c:vpmm_pool_commit
    edit draft->groups[i].fence => VPMM_FENCE_NONE
    test unit/pool_stitch

The name is a sentence with hyphens. `rule` is a section of docs/DESIGN.md: the rule or invariant that the bug breaks.
`in` names the file and the function that guards it. `edit OLD => NEW` replaces OLD in the body of that function. OLD
must be there exactly once. It is compared word by word, so spaces, line breaks and comments in the body do not matter.
Without NEW, OLD is taken away. Without OLD, NEW stands at the beginning of the body. There may be several edits.
`test` is suite/test, or a suite for all of its tests. There may be several: the first that fails ends the trial.
Two more words may be given: `hangs yes` for a bug that only a time-out can show, and `expect REGEX` for what the
output of the test must hold."""
import pathlib
import re
from typing import List, NamedTuple, Optional

# What DESIGN.md demands in numbered sentences, and the folders of the product. Each of these needs a mutant.
DEMANDS = ["3"] + ["3.%d" % n for n in range(1, 17)] + ["4.%d" % n for n in range(1, 7)]
FOLDERS = ["base", "driver", "pool", "order", "heap", "small", "offload", "route", "preload", "config", "observe", "ipc",
           "recorder", "trace", "replay"]
SECTION = re.compile(r"[1-8](\.\d+)?$")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+){2,}$")
REQUIRED, OPTIONAL, REPEATED = ("rule", "in", "test", "edit"), ("hangs", "expect"), ("test", "edit")

# Comments, spaces and lines of the preprocessor are no words of C.
NO_WORD = r"/\*.*?\*/|//[^\n]*|\s+|\\\n|^[ \t]*#(?:\\\n|[^\n])*"
WORD = re.compile(NO_WORD + r"""|(?P<word>\w+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|<<=|>>=|->|\+\+|--|&&|\|\||<<|>>|"""
                  r"""[-+*/%&|^=!<>]=|.)""", re.DOTALL | re.MULTILINE)


class BadList(Exception):
    """The list is wrong. The text says where and why."""


class DoesNotApply(Exception):
    """The function or the old text is not there exactly once."""


class Edit(NamedTuple):
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    rule: str
    file: str
    function: str
    edits: List[Edit]
    tests: List[str]
    hangs: bool = False
    expect: Optional[str] = None


def edit_of(text):
    old, arrow, new = (" %s " % text).partition(" => ")
    return Edit(old.strip(), new.strip()) if arrow else None


def mutant_of(lines, where):
    """One paragraph."""
    name, given = lines[0], {}
    where = "%s: %s" % (where, name)
    if not NAME.match(name):
        raise BadList("%s is no sentence with hyphens" % where)
    for line in lines[1:]:
        word, _, value = line.partition(" ")
        if word not in REQUIRED + OPTIONAL or (word in given and word not in REPEATED):
            raise BadList("%s: not understood: %s" % (where, line))
        given.setdefault(word, []).append(value)
    for word in REQUIRED:
        if word not in given:
            raise BadList("%s: no %s" % (where, word))
    rule = given["rule"][0]
    if not SECTION.match(rule):
        raise BadList("%s: DESIGN.md has no %s" % (where, rule))
    file, colon, function = given["in"][0].rpartition(":")
    if not colon:
        raise BadList("%s: %s names no function" % (where, function))
    edits = [edit_of(text) for text in given["edit"]]
    if any(edit is None or words_of(edit.old) == words_of(edit.new) for edit in edits):
        raise BadList("%s: an edit changes nothing" % where)
    return Mutant(name, rule, file, function, edits, given["test"], given.get("hangs") == ["yes"],
                  given.get("expect", [None])[0])


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


def words(text):
    """The words of a text in C, as matches that know where they are."""
    return [match for match in WORD.finditer(text) if match.group("word") is not None]


def words_of(text):
    return [word.group() for word in words(text)]


def closing(text_words, at):
    """Where the bracket that opens at `at` is closed."""
    depth = 0
    for i in range(at, len(text_words)):
        depth += (text_words[i].group() in "({") - (text_words[i].group() in ")}")
        if depth == 0:
            return i
    return len(text_words) - 1


def bodies(text, function):
    """The words of each body that the text gives to the function, without the braces."""
    found, all_words, at = [], words(text), 0
    while at < len(all_words):
        after = closing(all_words, at)
        if all_words[at].group() == "(" and all_words[at - 1].group() == function:
            if after + 1 < len(all_words) and all_words[after + 1].group() == "{":
                found.append(all_words[after + 1:closing(all_words, after + 1) + 1])
        at = after + 1
    return found


def body_of(text, mutant):
    """The words of the function's body with both braces. Raises DoesNotApply."""
    found = bodies(text, mutant.function)
    if len(found) != 1:
        raise DoesNotApply("%s defines %s %d times" % (mutant.file, mutant.function, len(found)))
    return found[0]


def apply(text, mutant, edit):
    """The text with one edit made. Raises DoesNotApply."""
    body, old = body_of(text, mutant), words_of(edit.old)
    if not old:
        return text[:body[0].end()] + " " + edit.new + text[body[0].end():]
    there = [word.group() for word in body]
    places = [i for i in range(1, len(there) - len(old)) if there[i:i + len(old)] == old]
    if len(places) != 1:
        raise DoesNotApply("%s of %s has %d times: %s" % (mutant.function, mutant.file, len(places), edit.old))
    begin, end = body[places[0]].start(), body[places[0] + len(old) - 1].end()
    return text[:begin] + edit.new + text[end:]


def plant(text, mutant):
    """The text of the mutant's file with the bug in it."""
    for edit in mutant.edits:
        text = apply(text, mutant, edit)
    return text


def homes(root, function):
    """The files of the product that define the function, relative to the root."""
    for path in sorted(pathlib.Path(root, "src").rglob("*.[ch]")):
        if bodies(path.read_text(encoding="utf-8"), function):
            yield str(path.relative_to(root))


def complaint(mutant, root):
    """Why the mutant cannot be planted, and where its function is now. None where it can."""
    path = pathlib.Path(root, mutant.file)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    try:
        plant(text, mutant)
    except DoesNotApply as reason:
        moved = [] if bodies(text, mutant.function) else list(homes(root, mutant.function))
        return "%s: %s%s" % (mutant.name, reason, "; it is in %s" % " and ".join(moved) if moved else "")
    return None


def complaints(mutants, root):
    """What is wrong with the list as a whole: a mutant that does not apply, a demand or a folder without one."""
    yield from filter(None, (complaint(mutant, root) for mutant in mutants))
    for demand in DEMANDS:
        if not any(mutant.rule == demand for mutant in mutants):
            yield "no mutant breaks %s" % demand
    for folder in FOLDERS:
        if not any("/%s/" % folder in mutant.file for mutant in mutants):
            yield "no mutant is planted in a folder %s" % folder


def ordered(mutants):
    """By the rule they break, then by name."""
    return sorted(mutants, key=lambda mutant: ([int(n) for n in mutant.rule.split(".")], mutant.name))


def table(mutants):
    """In Markdown."""
    rows = ["| bug | breaks | planted in | caught by |", "|---|---|---|---|"]
    for mutant in ordered(mutants):
        tests = " ".join("`%s`" % test for test in mutant.tests)
        rows.append("| %s | %s | `%s` | %s |" % (mutant.name.replace("-", " "), mutant.rule, mutant.function, tests))
    return "\n".join(rows) + "\n"
