# SPDX-License-Identifier: MIT
"""Sizes and times as a person reads them."""
from __future__ import annotations

import math
import re
from typing import List, Optional, Tuple

BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
TIME_UNITS = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)]
TIME_WORDS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "": 1e9}


def bytes_text(n_bytes: float) -> str:
    """Three figures and a binary unit."""
    place = 0
    while place + 1 < len(BYTE_UNITS) and abs(n_bytes) >= (1000 if place == 0 else 999.5):
        n_bytes, place = n_bytes / 1024, place + 1
    digits = max(0, 2 - int(math.log10(max(abs(n_bytes), 1))))
    text = f"{n_bytes:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {BYTE_UNITS[place]}"


def byte_ticks(top: float, most: int = 6) -> List[float]:
    """0 and multiples of a power of two, at most so many steps up to `top`."""
    step = 2.0 ** max(0, math.ceil(math.log2(max(top, 1) / most)))
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def time_unit(span_ns: float) -> Tuple[str, float]:
    """Of an axis that shows so much."""
    fitting = [unit for unit in TIME_UNITS if span_ns >= 2 * unit[1]]
    return fitting[-1] if fitting else TIME_UNITS[0]


def time_text(ns: float) -> str:
    name, unit = ([unit for unit in TIME_UNITS if ns >= unit[1]] or TIME_UNITS[:1])[-1]
    return f"{ns / unit:.3g} {name}" if ns / unit < 1000 else f"{ns / unit:,.0f} {name}"


def parsed_time(text: str) -> Optional[float]:
    """Nanoseconds of "1.5", "1.5s", "20ms" and such; None for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|min|h|)", text)
    return float(match.group(1)) * TIME_WORDS[match.group(2)] if match else None


def count_text(number: float) -> str:
    return f"{number:,.0f}"
