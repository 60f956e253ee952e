# SPDX-License-Identifier: MIT
"""Makes an SVG of matplotlib's smaller, and looks the same: coordinates to a hundredth of a point, pixels by a palette."""
from __future__ import annotations

import base64
import io
import re

COLOURS = 128
COORDINATE = re.compile(r"(-?\d+\.\d\d)\d+")
PATH = re.compile(r'(?<=\sd=")[^"]*(?=")|(?<=\stransform=")[^"]*(?=")|(?<=\s[xy]=")[-\d.]+(?=")')
PIXELS = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")


def _rounded(match: re.Match) -> str:
    text = COORDINATE.sub(r"\1", match.group())
    text = re.sub(r"(\.\d)0\b|\.00\b", lambda zeros: zeros.group(1) or "", text)
    return text.replace(" \n", "\n").replace("\n", " ").strip()


def _repainted(match: re.Match) -> str:
    from PIL import Image
    image = Image.open(io.BytesIO(base64.b64decode(match.group())))
    if image.mode == "RGBA" and image.getextrema()[3] != (255, 255):
        return match.group()
    smaller, out = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE), io.BytesIO()
    smaller.save(out, format="png", optimize=True)
    text = base64.b64encode(out.getvalue()).decode()
    return text if len(text) < len(match.group()) else match.group()


def svg(text: str) -> str:
    text = PIXELS.sub(_repainted, PATH.sub(_rounded, text))
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
