# SPDX-License-Identifier: MIT
"""vpmm.Weights in host memory: what a streamed weight's address shows outside of its use is not its bytes. For tests
without a device."""
import ctypes
import json
import os
import struct

from vpmm.errors import BadSource, BudgetTooSmall, OtherOrder
from vpmm.native import FIGURES
from vpmm.sizes import parse_bytes
from vpmm.weights import STREAMED, Tensor

POISON = 0xFF


class HostWeights:
    """The same calls; every budget that holds the largest two groups will do. `calls` is what was called in passes."""

    staged = ()

    def __init__(self, budget, device=0, follow=False, check=False, **_options):
        self.budget_bytes, self.follows = parse_bytes(budget), follow
        self.files, self.added, self.used = [], [], {}
        self.heat = {}  # uses of direct groups
        self.recorded, self.seen, self.in_pass, self.calls = None, [], False, []
        self.is_closed = False
        self.all_bytes = 1 << 62

    def open(self, path):
        if not os.path.exists(path):
            raise BadSource(f"{path}: it cannot be opened")
        with open(path, "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        self.files.append(path)
        return len(self.files) - 1, {
            name: Tensor(found["dtype"], tuple(found["shape"]), found["data_offsets"][1] - found["data_offsets"][0],
                         8 + length + found["data_offsets"][0])
            for name, found in header.items() if name != "__metadata__"}

    def add(self, name, group, n_bytes, kind=STREAMED):
        memory = ctypes.create_string_buffer(n_bytes + 64)
        address = (ctypes.addressof(memory) + 63) & ~63
        ctypes.memset(address, POISON, n_bytes)
        self.added.append({"name": name, "group": group, "bytes": n_bytes, "kind": kind, "at": address, "memory": memory})
        return len(self.added) - 1, address

    def fill_from(self, number, source, tensor):
        _, found = self.open(self.files[source])
        with open(self.files[source], "rb") as file:
            file.seek(found[tensor].offset)
            self.added[number]["data"] = file.read(found[tensor].n_bytes)

    def order(self, groups):
        self.recorded = list(groups)

    def seal(self):
        sizes = {}
        for weight in self.added:
            sizes[weight["group"]] = sizes.get(weight["group"], 0) + weight["bytes"]
            if weight["kind"] != STREAMED:
                ctypes.memmove(weight["at"], weight["data"], weight["bytes"])
        floor = max(sizes.values())
        if self.budget_bytes < floor:
            raise BudgetTooSmall("the budget is too small", floor)

    def _members(self, group):
        return [weight for weight in self.added if weight["group"] == group]

    def begin(self, _stream=None):
        assert not self.in_pass
        self.in_pass, self.seen = True, []
        self.calls.append("begin")
        for weight in self.added if self.is_whole() else ():
            ctypes.memmove(weight["at"], weight["data"], weight["bytes"])

    def use(self, group, _stream=None):
        assert self.in_pass
        if self._members(group)[0]["kind"] != STREAMED:
            self.heat[group] = self.heat.get(group, 0) + 1
            return
        if self.recorded is not None and self.recorded[len(self.seen):len(self.seen) + 1] != [group] and not self.follows:
            raise OtherOrder(f"{self._members(group)[0]['name']}: it is used where the recorded order has another")
        self.seen.append(group)
        self.used[group] = self.used.get(group, 0) + 1
        for weight in self._members(group):
            ctypes.memmove(weight["at"], weight["data"], weight["bytes"])

    def done(self, group, _stream=None):
        if self._members(group)[0]["kind"] != STREAMED:
            return
        assert self.used[group] > 0
        self.used[group] -= 1
        for weight in self._members(group) if not self.used[group] else ():
            ctypes.memset(weight["at"], POISON, weight["bytes"])

    def end(self, _stream=None):
        assert self.in_pass and not any(self.used.values())
        self.in_pass = False
        if self.recorded is None and not self.is_whole():
            self.recorded = self.seen
        self.calls.append("end")

    def cancel(self, _stream=None):
        self.in_pass, self.used = False, {}
        self.calls.append("cancel")

    def budget(self, size):
        self.budget_bytes = parse_bytes(size)

    def thaw(self):
        pass

    def is_whole(self):
        return self.budget_bytes >= self.all_bytes

    def stats(self):
        figures = dict.fromkeys(FIGURES, 0)
        return {**figures, "passes": self.calls.count("end"), "budget_bytes": self.budget_bytes}

    def close(self):
        self.is_closed = True
