# SPDX-License-Identifier: MIT
"""The arguments of `vpmm plot`."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, NamedTuple, NoReturn, Optional, Sequence, Tuple

import units
from failures import WrongUse

KINDS = ["memory", "map", "sizes", "compare", "all"]
FORMS = [".svg", ".png", ".html"]
PIXELS_LEAST, PIXELS_MOST = 200, 20000
VIEWS_MOST = 8


class Options(NamedTuple):
    files: List[Tuple[Path, str]]  # and what each is called
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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUse(message)


def _number(least: int, most: int):
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is no number from {least} to {most}")
        return int(text)
    return parse


def _time(text: str) -> float:
    ns = units.parsed_time(text)
    if ns is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no time: a number of seconds, or one with ns, us, ms, s, min or h")
    return ns


def named_file(text: str) -> Tuple[Path, str]:
    """FILE or FILE:LABEL, where no file has all of that for its name."""
    before, colon, label = text.rpartition(":")
    if colon and before and label and not Path(text).exists():
        return Path(before), label
    name = Path(text).name
    for end in (".gz", ".csv", ".vpmm", ".trace", ".json"):
        name = name.removesuffix(end) or name
    return Path(text), name


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="vpmm plot", add_help=False, allow_abbrev=False)
    pixels = _number(PIXELS_LEAST, PIXELS_MOST)
    parser.add_argument("files", nargs="*")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--kind", choices=KINDS, default="all")
    parser.add_argument("--colour", "--color", dest="colour_by", choices=["size", "stream", "path"], default="size")
    parser.add_argument("--device", type=_number(0, 255))
    parser.add_argument("--from", dest="begin_ns", type=_time)
    parser.add_argument("--to", dest="end_ns", type=_time)
    parser.add_argument("--title")
    parser.add_argument("--width", dest="width_px", type=pixels, default=1100)
    parser.add_argument("--height", dest="height_px", type=pixels)
    parser.add_argument("--dpi", type=_number(40, 600), default=100)
    parser.add_argument("--dark", dest="is_dark", action="store_true")
    parser.add_argument("--blocks", dest="blocks_most", type=_number(1, 10_000_000), default=100_000)
    return parser


def parse(arguments: Sequence[str]) -> Options:
    """Raises WrongUse."""
    found = vars(_parser().parse_args(list(arguments)))
    files, out, kind = found.pop("files"), found.pop("out"), found.pop("kind")
    if not files:
        raise WrongUse("which trace? FILE... is missing")
    if out is None:
        raise WrongUse("where to? -o FILE.svg, FILE.png or FILE.html is missing")
    if out.suffix.lower() not in FORMS:
        raise WrongUse(f"{out}: a picture's name ends in .svg, .png or .html")
    if found["begin_ns"] is not None and found["end_ns"] is not None and found["begin_ns"] >= found["end_ns"]:
        raise WrongUse("--from is not before --to")
    return Options([named_file(file) for file in files], out, out.suffix.lower(), kind, **found)


def say(text: str) -> None:
    print(f"vpmm plot: {text}", file=sys.stderr)
