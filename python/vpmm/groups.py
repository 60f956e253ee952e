# SPDX-License-Identifier: MIT
"""Which weights of a model are used together, and of which kind they are. It knows names and sizes, and no model."""
from dataclasses import dataclass, field

from .errors import BadSource, Unsupported
from .weights import DIRECT, KEPT, STREAMED

# A smaller group is not worth a window of its own.
SMALL_BYTES = 1 << 20


@dataclass
class Group:
    """The weights of one module, by their full names."""
    module: str
    kind: int
    names: list = field(default_factory=list)
    n_bytes: int = 0


def module_of(name):
    """The name of the module that has a weight."""
    return name.rpartition(".")[0]


def matches(module, patterns):
    """Whether a weight or module is one of those named, or inside one."""
    return any(module == pattern or module.startswith(pattern + ".") for pattern in patterns)


def make_groups(sizes, keep=(), direct=(), units=None, promote=False, small=SMALL_BYTES):
    """Groups from bytes by weight: one of all that is kept, one of all that is direct, and one for each module whose
    weights are streamed. `keep` and `direct` name modules or weights; a name that is none is refused. Modules with few
    bytes are kept. `promote`: direct weights have a group for each module, too. `units`: the names by which weights are
    grouped, where they are not their own."""
    units = units or {name: name for name in sizes}
    for pattern in (*keep, *direct):
        if not any(matches(name, (pattern,)) for name in sizes):
            raise Unsupported(f"{pattern}: no weight of the model is named so")
    streamed = {}
    for name, n_bytes in sizes.items():
        if not matches(name, (*keep, *direct)):
            module = module_of(units[name])
            streamed[module] = streamed.get(module, 0) + n_bytes
    groups = {}
    for name, n_bytes in sizes.items():
        kind = DIRECT if matches(name, direct) and not matches(name, keep) else KEPT
        if not matches(name, (*keep, *direct)) and streamed[module_of(units[name])] >= small:
            kind = STREAMED
        module = module_of(units[name]) if kind == STREAMED or (promote and kind == DIRECT) else ""
        group = groups.setdefault((module, kind), Group(module, kind))
        group.names.append(name)
        group.n_bytes += n_bytes
    return list(groups.values())


def order_of(groups, plan, first=None):
    """The numbers of streamed groups in the order of a plan's kernels, each once in a row. `first`: the first name of
    each weight by any of its names."""
    by_name = {name: number for number, group in enumerate(groups) for name in group.names}
    order = []
    for name in (name for step in plan.steps for name in step):
        number = by_name.get(first.get(name, name) if first else name)
        if number is None:
            raise BadSource(f"{name}: the plan reads it, and the model has no such weight")
        if groups[number].kind == STREAMED and order[-1:] != [number]:
            order.append(number)
    return order
