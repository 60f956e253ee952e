# SPDX-License-Identifier: MIT
"""Byte counts as people write them."""
import re
from fractions import Fraction

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
LIMIT = 1 << 64  # what the C interface has no number for


def parse_bytes(size):
    """An int, or a text such as "24GiB", "512 MB" or "1.5g"; units are powers of 1024. ValueError
    for anything else, and from 2^64 on."""
    if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < LIMIT:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", size, re.IGNORECASE) if isinstance(size, str) \
        else None
    value = Fraction(match[1]) * UNITS[match[2].lower()] if match else LIMIT
    if value >= LIMIT:
        raise ValueError(f"{size!r} is no number of bytes: write 24GiB, 512MiB or a whole number")
    return int(value)
