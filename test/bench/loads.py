# SPDX-License-Identifier: MIT
"""Made-up loads as traces (test/traces/README.md has the format): every run makes the same ones."""
import random

MIB = 1 << 20
GIB = 1 << 30


class Writer:
    """Writes the lines of a program that makes one request each ten microseconds."""

    def __init__(self):
        self.lines = []
        self.n_allocations = 0

    def malloc(self, size, stream=0x10):
        self.n_allocations += 1
        address = self.n_allocations << 12
        self.lines.append(f"A,{address:x},{size},{stream:x},{10 * len(self.lines)},a")
        return address

    def free(self, address, stream=0x10):
        self.lines.append(f"F,{address:x},,{stream:x},{10 * len(self.lines)},a")


def random_sizes(writer):
    """1 to 256 MiB, 64 of them live, 20,000 pairs."""
    dice = random.Random(1)
    live = [writer.malloc(dice.randint(1, 256) * MIB) for _ in range(64)]
    for _ in range(20000):
        which = dice.randrange(64)
        writer.free(live[which])
        live[which] = writer.malloc(dice.randint(1, 256) * MIB)


def walkthrough(writer):
    """The walkthrough of docs/DESIGN.md in units of 4 GiB."""
    first = writer.malloc(40 * GIB)
    writer.malloc(4 * GIB)
    writer.free(first)
    writer.malloc(16 * GIB)
    writer.malloc(44 * GIB)


def every_other(writer):
    """64 of 1.5 GiB, every other one freed, then 40 GiB."""
    live = [writer.malloc(3 * GIB // 2) for _ in range(64)]
    for address in live[::2]:
        writer.free(address)
    writer.malloc(40 * GIB)


def two_streams(writer):
    """64 MiB on one stream and then on the other, 10,000 pairs."""
    for i in range(10000):
        writer.free(writer.malloc(64 * MIB, 0x10 + i % 2), 0x10 + i % 2)


def growth(size):
    return lambda writer: writer.malloc(size)


LOADS = {
    "random": random_sizes,
    "walkthrough": walkthrough,
    "every-other": every_other,
    "grow-1": growth(1 * GIB),
    "grow-8": growth(8 * GIB),
    "grow-32": growth(32 * GIB),
    "two-streams": two_streams,
}


def make(name):
    """The load's trace as text."""
    writer = Writer()
    LOADS[name](writer)
    return "\n".join(writer.lines) + "\n"
