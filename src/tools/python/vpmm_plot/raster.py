# SPDX-License-Identifier: MIT
"""Paints millions of rectangles as one picture: what each pixel shows is how much of it each state covers."""
from __future__ import annotations

from typing import Tuple

import numpy

TONES = 24  # so many steps between two colours: few colours make small files


def _edges(at: numpy.ndarray) -> Tuple[Tuple[numpy.ndarray, numpy.ndarray], Tuple[numpy.ndarray, numpy.ndarray]]:
    """Where the ramp that begins there changes its slope: (pixel, weight), twice."""
    pixel = numpy.floor(at).astype(numpy.int64)
    share = at - pixel
    return (pixel, 1 - share), (pixel + 1, share)


def covered(left: numpy.ndarray, right: numpy.ndarray, low: numpy.ndarray, high: numpy.ndarray, weight: numpy.ndarray,
            width: int, height: int) -> numpy.ndarray:
    """Of each pixel the sum of covered area times weight. Rectangles are in pixels, within the picture; row 0 is low."""
    sums = numpy.zeros((height + 2) * (width + 2))
    for x_at, x_sign in ((left, 1.0), (right, -1.0)):
        for y_at, y_sign in ((low, 1.0), (high, -1.0)):
            for x, x_weight in _edges(x_at):
                for y, y_weight in _edges(y_at):
                    sums += numpy.bincount(y * (width + 2) + x, x_sign * y_sign * weight * x_weight * y_weight, sums.size)
    summed = sums.reshape(height + 2, width + 2).cumsum(axis=0).cumsum(axis=1)[:height, :width]
    return numpy.where(numpy.abs(summed) < 1e-6, 0, summed)


def blended(below: numpy.ndarray, colour: numpy.ndarray, share: numpy.ndarray) -> numpy.ndarray:
    """The picture (height, width, 3; 0 to 1) with so much of the colour over it."""
    rounded = numpy.ceil(numpy.clip(share, 0, 1) * TONES) / TONES
    return below + (colour - below) * rounded[:, :, None]
