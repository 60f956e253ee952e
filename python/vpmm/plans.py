# SPDX-License-Identifier: MIT
"""A plan: the order in which a program reads its weights, and the floor in bytes, as one small file. Sizes, shapes and
types are not in it: the file of the weights has them."""
import json
from dataclasses import dataclass

from .errors import BadSource

VERSION = 1


@dataclass(frozen=True)
class Plan:
    """`steps`: for each kernel that reads weights, their names; `floor`: bytes of the largest two in a row."""
    steps: tuple
    floor: int

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"vpmm_plan": VERSION, "floor_bytes": self.floor, "steps": [list(step) for step in self.steps]},
                      file)
        return path

    def names(self):
        """Every weight once, in the order of first use."""
        return list(dict.fromkeys(name for step in self.steps for name in step))


def make_plan(steps, sizes):
    """`steps`: lists of names in the order of kernels; `sizes`: bytes by name."""
    steps = tuple(tuple(dict.fromkeys(step)) for step in steps if step)
    sums = [sum(sizes[name] for name in step) for step in steps]
    return Plan(steps, max((a + b for a, b in zip(sums, sums[1:])), default=sum(sums)))


def _is_step(step):
    return isinstance(step, list) and all(isinstance(name, str) for name in step)


def load_plan(path):
    """Reads what Plan.save wrote; BadSource for anything else."""
    if isinstance(path, Plan):
        return path
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise BadSource(f"{path}: {error}") from None
    steps = found.get("steps") if isinstance(found, dict) and found.get("vpmm_plan") == VERSION else None
    if not isinstance(steps, list) or not all(map(_is_step, steps)) or not isinstance(found.get("floor_bytes"), int):
        raise BadSource(f"{path}: it is no plan of this version")
    return Plan(tuple(tuple(step) for step in steps), found["floor_bytes"])
