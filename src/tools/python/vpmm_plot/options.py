# SPDX-License-Identifier: MIT
"""The arguments of `vpmm plot`."""
from __future__ import annotations

import getopt
import sys
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import units
from failures import WrongUse

INPUT = "-"
KINDS = ["memory", "map", "sizes", "compare", "all"]
COLOURS = ["size", "stream", "path"]
FORMS = [".svg", ".png", ".html"]
PIXELS_LEAST, PIXELS_MOST = 200, 20000
VIEWS_MOST = 8


class File(NamedTuple):
    path: Optional[Path]  # None: standard input
    label: str


class Options(NamedTuple):
    files: List[File]
    out: Path
    form: str
    kind: str
    colour_by: str
    device: Optional[int]
    begin_ns: Optional[float]
    end_ns: Optional[float]
    title: Optional[str]
    width_px: int
    height_px: Optional[int]
    dpi: int
    is_dark: bool
    blocks_most: int


class _Option(NamedTuple):
    field: str
    read: Optional[Callable[[str], Any]]  # None: it takes no value. Otherwise None for a text that it does not take
    takes: str = ""


def _number(least: int, most: int, field: str) -> _Option:
    def read(text: str) -> Optional[int]:
        is_number = text.isascii() and text.isdigit() and least <= int(text[:20]) <= most
        return int(text) if is_number else None
    return _Option(field, read, f"a number from {least} to {most}")


def _one_of(words: List[str], field: str) -> _Option:
    return _Option(field, lambda text: text if text in words else None, f"{', '.join(words[:-1])} or {words[-1]}")


_TIME = "seconds, or a number with ns, us, ms, s, min or h"
_OPTIONS = {
    "out": _Option("out", Path),
    "kind": _one_of(KINDS, "kind"),
    "colour": _one_of(COLOURS, "colour_by"),
    "color": _one_of(COLOURS, "colour_by"),
    "device": _number(0, 255, "device"),
    "from": _Option("begin_ns", units.parsed_time, _TIME),
    "to": _Option("end_ns", units.parsed_time, _TIME),
    "title": _Option("title", str),
    "width": _number(PIXELS_LEAST, PIXELS_MOST, "width_px"),
    "height": _number(PIXELS_LEAST, PIXELS_MOST, "height_px"),
    "dpi": _number(40, 600, "dpi"),
    "dark": _Option("is_dark", None),
    "blocks": _number(1, 10_000_000, "blocks_most"),
}
_DEFAULTS = {"out": None, "kind": "all", "colour_by": "size", "device": None, "begin_ns": None, "end_ns": None, "title": None,
             "width_px": 1100, "height_px": None, "dpi": 100, "is_dark": False, "blocks_most": 100_000}


def named_file(text: str) -> File:
    """FILE or FILE:LABEL, where no file has all of that for its name."""
    before, colon, label = text.rpartition(":")
    if colon and before and label and not Path(text).exists():
        return File(Path(before) if before != INPUT else None, label)
    if text == INPUT:
        return File(None, "standard input")
    name = Path(text).name
    for end in (".gz", ".csv", ".vpmm", ".trace", ".json"):
        name = name.removesuffix(end) or name
    return File(Path(text), name)


def _split(arguments: Sequence[str]) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Options with their values, and files, in any order."""
    names = [name if option.read is None else f"{name}=" for name, option in _OPTIONS.items()]
    # Standard input with a label is no option: for the moment it does not begin with a hyphen.
    words = [f"\0{word}" if word.startswith(f"{INPUT}:") else word for word in arguments]
    try:
        options, files = getopt.gnu_getopt(words, "o:", names)
        return [(name, value.lstrip("\0")) for name, value in options], [file.lstrip("\0") for file in files]
    except getopt.GetoptError as error:
        name = ("--" if error.msg.startswith("option --") else "-") + error.opt
        if "requires" in error.msg:
            raise WrongUse(f"{name} needs a value") from error
        if "must not" in error.msg:
            raise WrongUse(f"{name} takes no value") from error
        raise WrongUse(f"there is no option {name}") from error


def _read(name: str, text: str) -> Tuple[str, Any]:
    option = _OPTIONS[name]
    if option.read is None:
        return option.field, True
    if not text:
        raise WrongUse(f"--{name} needs a value")
    value = option.read(text)
    if value is None:
        raise WrongUse(f"--{name} '{text}' is not accepted: it takes {option.takes}")
    return option.field, value


def parse(arguments: Sequence[str]) -> Options:
    """Raises WrongUse."""
    given, names = _split(arguments)
    found = {**_DEFAULTS, **dict(_read("out" if name == "-o" else name[2:], text) for name, text in given)}
    files, out, kind = [named_file(name) for name in names], found.pop("out"), found.pop("kind")
    if not files:
        raise WrongUse("which trace? FILE... is missing")
    if out is None:
        raise WrongUse("where to? -o FILE.svg, FILE.png or FILE.html is missing")
    if out.suffix.lower() not in FORMS:
        raise WrongUse(f"{out}: a picture's name ends in .svg, .png or .html")
    if found["begin_ns"] is not None and found["end_ns"] is not None and found["begin_ns"] >= found["end_ns"]:
        raise WrongUse("--from is not before --to")
    if sum(file.path is None for file in files) > 1:
        raise WrongUse("standard input is one FILE, and - stands for it only once")
    return Options(files, out, out.suffix.lower(), kind, **found)


def say(text: str) -> None:
    shown = "".join("?" if letter < " " or letter == "\x7f" else letter for letter in text)
    print(f"vpmm plot: {shown}", file=sys.stderr)
