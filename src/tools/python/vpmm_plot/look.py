# SPDX-License-Identifier: MIT
"""Colours, letters and words of all pictures, those in HTML too. Hues are Okabe and Ito's, apart for every kind of eye."""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy

FONTS = ["DejaVu Sans", "Verdana", "Helvetica", "Arial", "sans-serif"]


class Theme(NamedTuple):
    ground: str
    panel: str
    ink: str
    soft: str
    grid: str
    live: str
    held: str
    pending: str
    passed: str
    failed: str
    free: str
    zombie: str
    sizes: Sequence[str]  # from the smallest to the largest


LIGHT = Theme(ground="#ffffff", panel="#ffffff", ink="#1f2328", soft="#59636e", grid="#e7eaee", live="#0072b2",
              held="#59636e", pending="#e69f00", passed="#009e73", failed="#d55e00", free="#e3e6ea", zombie="#e3a9c8",
              sizes=("#c3e6b5", "#5cc1bd", "#2c86bd", "#26429b", "#1b1a5e"))
DARK = Theme(ground="#0d1117", panel="#0d1117", ink="#e6edf3", soft="#9198a1", grid="#252c35", live="#56b4e9",
             held="#aab2bb", pending="#f0b429", passed="#2bc49a", failed="#ff7b4a", free="#2a313b", zombie="#8d4a70",
             sizes=("#2b3a8c", "#2a78b8", "#45b4c2", "#a4dcb0", "#f4f7c1"))
STREAMS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a800", "#7b61c9"]
OTHERS = "#8c959f"
# How a request was served, from the cheapest way to the dearest.
PATHS: Dict[str, str] = {"cache": "#0072b2", "habit": "#56b4e9", "fit": "#009e73", "revive": "#b5a800",
                         "stitch": "#e69f00", "grow": "#d55e00", "pool": "#7b61c9", "CUDA": "#cc79a7",
                         "not known": "#0072b2"}
# What the curves of memory and their marks are called, in figures and in pages; and of which a legend tells the most.
WORDS: Dict[str, str] = {"held": "held", "live": "live", "passed": "of it, served by CUDA", "pending": "freed, work pending",
                         "failed": "refused"}
TELL_MOST = ("held", "live")


def legend_text(name: str, most: str) -> str:
    """Of a curve that is at most so high."""
    return f"{WORDS[name]}, at most {most}" if name in TELL_MOST else WORDS[name]


def theme(is_dark: bool) -> Theme:
    return DARK if is_dark else LIGHT


def rgb(colour: str) -> Tuple[float, float, float]:
    red, green, blue = (int(colour[place:place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def between(colours: Sequence[str], share: numpy.ndarray) -> numpy.ndarray:
    """Of each share, 0 to 1, its colour in the scale that these make."""
    stops = numpy.linspace(0, 1, len(colours))
    table = numpy.array([rgb(colour) for colour in colours])
    return numpy.stack([numpy.interp(share, stops, table[:, channel]) for channel in range(3)], axis=-1)
