# SPDX-License-Identifier: MIT
"""The list of deliberate bugs: reads it, checks it, and plants one bug in a text.

A list file holds paragraphs. A line that begins with # is a comment. A paragraph of one line heads the mutants below it:
it names the section of docs/DESIGN.md that they break, and says in words which rule or invariant that is.

    rule 3.6 Extents: what is moved comes after all who used it, and so does the unmap.

    a-zombie-has-no-fence
    in vpmm_pool_commit
    edit draft->groups[i].fence => VPMM_FENCE_NONE
    test unit/pool_stitch

The name is a sentence with hyphens. `in` names the function that guards the rule, as `file.c:function` where several
files below src define one of that name. `edit OLD => NEW` replaces OLD in the body of that function. OLD must be there
exactly once. It is compared word by word, so spaces, line breaks and comments in the body do not matter, and (...) in it
stands for whatever a call is given. Without NEW, OLD is taken away. Without OLD, NEW stands at the beginning of the body.
`test` is the suite/test that fails then. `hangs yes` marks a bug that a time-out may show."""
import pathlib
import re
from typing import NamedTuple

# What DESIGN.md demands in numbered sentences. Each of these needs a mutant, and so does each folder of the product.
DEMANDS = ["3"] + ["3.%d" % n for n in range(1, 17)] + ["4.%d" % n for n in range(1, 7)]
FOLDERS = ["src/lib/*/", "src/tools/trace/", "src/tools/replay/"]
HEADING = re.compile(r"rule ([1-8](?:\.\d+)?) \S.*$")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+){2,}$")
REQUIRED, OPTIONAL = ("in", "edit", "test"), ("hangs",)

# Comments, spaces and lines of the preprocessor are no words of C.
NO_WORD = r"/\*.*?\*/|//[^\n]*|\s+|\\\n|^[ \t]*#(?:\\\n|[^\n])*"
WORD = re.compile(NO_WORD + r"""|(?P<word>\w+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|<<=|>>=|\.\.\.|->|\+\+|--|&&|\|\||<<|>>|"""
                  r"""[-+*/%&|^=!<>]=|.)""", re.DOTALL | re.MULTILINE)


class BadList(Exception):
    """The list is wrong. The text says where and why."""


class DoesNotApply(Exception):
    """The function or the old text is not there exactly once."""


class Mutant(NamedTuple):
    name: str
    rule: str
    file: str  # where several define the function, else empty
    function: str
    old: str
    new: str
    test: str
    hangs: bool = False


def mutant_of(lines, rule, where):
    """One paragraph."""
    name, given = lines[0], {}
    where = "%s: %s" % (where, name)
    if not NAME.match(name):
        raise BadList("%s is no sentence with hyphens" % where)
    for line in lines[1:]:
        word, _, value = line.partition(" ")
        if word not in REQUIRED + OPTIONAL or word in given:
            raise BadList("%s: not understood: %s" % (where, line))
        given[word] = value
    for word in REQUIRED:
        if word not in given:
            raise BadList("%s: no %s" % (where, word))
    if not rule:
        raise BadList("%s: no rule stands above it" % where)
    file, _, function = given["in"].rpartition(":")
    old, arrow, new = (" %s " % given["edit"]).partition(" => ")
    if not arrow or words_of(old) == words_of(new):
        raise BadList("%s: the edit changes nothing" % where)
    return Mutant(name, rule, file, function, old.strip(), new.strip(), given["test"], given.get("hangs") == "yes")


def parse(text, where):
    """The mutants of one list file."""
    text = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    found, rule = [], None
    for paragraph in filter(None, re.split(r"\n{2,}", text.strip("\n"))):
        heading = HEADING.match(paragraph)
        if heading:
            rule = heading.group(1)
        else:
            found.append(mutant_of(paragraph.splitlines(), rule, where))
    return found


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
        depth += (text_words[i] in "({") - (text_words[i] in ")}")
        if depth == 0:
            return i
    return len(text_words) - 1


def definitions(text):
    """(name, words of the body with both braces) of every function that the text defines."""
    matches = words(text)
    there, at = [match.group() for match in matches], 0
    while at < len(there):
        after = closing(there, at)
        if at > 0 and there[at] == "(" and there[after + 1:after + 2] == ["{"]:
            yield there[at - 1], matches[after + 1:closing(there, after + 1) + 1]
        at = after + 1


def end_of(old, there, at):
    """Where the words `old` end, if `there` has them at `at`, else None."""
    for word in old:
        if at >= len(there):
            return None
        if word == "...":
            at = closing(there, at - 1)
        elif there[at] == word:
            at += 1
        else:
            return None
    return at


def plant(text, mutant):
    """The text of the mutant's file with the bug in it. Raises DoesNotApply."""
    found = [body for name, body in definitions(text) if name == mutant.function]
    if len(found) != 1:
        raise DoesNotApply("%s is defined %d times" % (mutant.function, len(found)))
    body, old = found[0], words_of(mutant.old)
    if not old:
        return text[:body[0].end()] + " " + mutant.new + text[body[0].end():]
    there = [word.group() for word in body[:-1]]
    places = [(at, end) for at in range(1, len(there)) for end in [end_of(old, there, at)] if end]
    if len(places) != 1:
        raise DoesNotApply("%s has %d times: %s" % (mutant.function, len(places), mutant.old))
    at, end = places[0]
    return text[:body[at].start()] + mutant.new + text[body[end - 1].end():]


def homes(root):
    """The files below src, relative to the root, that define each function."""
    found = {}
    for path in sorted(pathlib.Path(root, "src").rglob("*.[ch]")):
        for name, _ in definitions(path.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(str(path.relative_to(root)))
    return found


def home(mutant, defined):
    """The one file of homes() that the mutant means. Raises DoesNotApply."""
    files = [file for file in defined.get(mutant.function, []) if mutant.file in ("", pathlib.PurePath(file).name)]
    if len(files) != 1:
        raise DoesNotApply("%s is defined %d times: %s" % (mutant.function, len(files), " ".join(files) or "nowhere"))
    return files[0]


def complaints(mutants, root):
    """What is wrong with the list as a whole: a mutant that does not apply, a demand or a folder without one."""
    defined, planted = homes(root), set()
    for mutant in mutants:
        try:
            path = pathlib.Path(root, home(mutant, defined))
            plant(path.read_text(encoding="utf-8"), mutant)
            planted.add(path.parent)
        except DoesNotApply as reason:
            yield "%s: %s" % (mutant.name, reason)
    for demand in DEMANDS:
        if not any(mutant.rule == demand for mutant in mutants):
            yield "no mutant breaks %s" % demand
    for folder in sorted(path for pattern in FOLDERS for path in pathlib.Path(root).glob(pattern)):
        if folder not in planted:
            yield "no mutant is planted in %s" % folder.relative_to(root)
