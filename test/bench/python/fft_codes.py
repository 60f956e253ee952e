# SPDX-License-Identifier: MIT
"""A CuPy program whose calls are worth recording: a turbulent flow in a periodic box, computed by transforms that are padded
against aliasing, on a grid that is made finer or coarser now and then; and filters over signals of different lengths. With
--device cpu NumPy does the same."""
import sys
from itertools import product

import scale

BOX = (1, 2, 3)  # the axes of a field's three components


def refined(xp, spectrum, n):
    """The spectrum (3, m, m, m // 2 + 1) on a grid of n: cut where that is smaller, and padded with zeros where it is
    larger."""
    m = spectrum.shape[1]
    low, shown = min(m, n) // 2, xp.zeros((3, n, n, n // 2 + 1), spectrum.dtype)
    for x, y in product((slice(0, low), slice(-low, None)), repeat=2):
        shown[:, x, y, :low] = spectrum[:, x, y, :low]
    return shown * xp.float32((n / m) ** 3)


class Flow:
    """Velocities of a fluid on a grid of n points a side."""

    def __init__(self, xp, spectrum):
        self.xp, self.spectrum, self.n = xp, spectrum, spectrum.shape[1]
        around = xp.fft.fftfreq(self.n, 1 / self.n).astype(xp.float32)
        along = xp.arange(self.n // 2 + 1, dtype=xp.float32)
        self.waves = xp.stack(xp.meshgrid(around, around, along, indexing="ij"))
        self.squares = xp.maximum((self.waves ** 2).sum(axis=0), 1)

    def curl(self, field):
        a, b = self.waves, field
        return 1j * self.xp.stack([a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]).astype(field.dtype)

    def change(self, spectrum):
        """Of the spectrum in time: what the fluid carries along, without its pressure, and what friction takes."""
        xp, fine = self.xp, self.n * 3 // 2
        speed = xp.fft.irfftn(refined(xp, spectrum, fine), s=(fine,) * 3, axes=BOX)
        turning = xp.fft.irfftn(refined(xp, self.curl(spectrum), fine), s=(fine,) * 3, axes=BOX)
        carried = xp.stack([speed[i] * turning[j] - speed[j] * turning[i] for i, j in ((1, 2), (2, 0), (0, 1))])
        carried = refined(xp, xp.fft.rfftn(carried, axes=BOX), self.n).astype(spectrum.dtype)
        pressed = (self.waves * carried).sum(axis=0) / self.squares
        return carried - self.waves * pressed - xp.float32(0.02) * self.squares * spectrum

    def step(self, seconds):
        half = self.spectrum + self.xp.float32(seconds / 2) * self.change(self.spectrum)
        self.spectrum = self.spectrum + self.xp.float32(seconds) * self.change(half)

    def energies(self):
        """By the length of the waves."""
        xp = self.xp
        shells = xp.sqrt(self.squares).astype(xp.int32).ravel()
        powers = (xp.abs(self.spectrum) ** 2).sum(axis=0).ravel()
        return xp.bincount(shells, weights=powers)[: self.n // 2] / float(self.n) ** 6



def filtered(xp, world, length, n_filters):
    """A noisy signal behind several filters: the loudest point of each."""
    signal = xp.sin(xp.arange(length, dtype=xp.float32) * 0.01) + xp.arange(length, dtype=xp.float32) % 7
    seen, loudest = xp.fft.rfft(signal), []
    for _ in range(n_filters):
        taps = xp.hanning(world.random.randint(64, length // 4)).astype(xp.float32)
        through = xp.fft.irfft(seen * xp.fft.rfft(taps, n=length), n=length)
        loudest.append(xp.abs(through).max() / len(taps))
    return xp.stack(loudest)


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    if world.device == "cuda":
        import cupy as xp
        xp.cuda.set_allocator(xp.cuda.MemoryAsyncPool().malloc)
    else:
        import numpy as xp
    grids, steps, longest = world.of(((96, 160, 128, 224, 192, 144), 7, 12000000), ((8, 12), 2, 3000))
    spectrum = xp.zeros((3, grids[0], grids[0], grids[0] // 2 + 1), xp.complex64)
    for axis, wave in product(range(3), range(1, 4)):
        spectrum[axis, (axis + wave) % 3, wave % 3, wave] = grids[0] ** 3 * 0.1 / wave
    total = 0.0
    for n in grids:
        flow = Flow(xp, refined(xp, spectrum, n))
        for _ in range(steps):
            flow.step(0.002)
        total += float(flow.energies().sum())
        spectrum = flow.spectrum
        total += float(filtered(xp, world, world.random.randint(longest // 10, longest), world.random.randint(3, 9)).sum())
    return scale.finish(steps * len(grids), total)


if __name__ == "__main__":
    sys.exit(main())
