# SPDX-License-Identifier: MIT
"""Memory snapshots in the shape of PyTorch's, and the ways in which they are pickled."""
import io
import pickle
import pickletools
import random
import struct

START = 1_795_379_407_594_442
FRAMES = [{"name": f"forward_{number}", "filename": f"/usr/lib/python3/torch/nn/modules/module{number % 7}.py", "line": number}
          for number in range(90)]
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": True, "release_lock_on_cudamalloc": False,
            "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)}}
PAGE = 2 << 20


class Job:
    """A history of `n_events` or a few more. Blocks lie in one segment that grows, and each has a page of its own. `before`
    blocks are there before the history begins. Afterwards `lines` are the requests in the CSV form, and the peaks are known."""

    def __init__(self, n_events, before=3, seed=1):
        self.before = before
        self.dice, self.base, self.us = random.Random(seed), 0x302000000, START
        self.events, self.live, self.free, self.lines = [], {}, [], []
        self.pages, self.live_peak = 0, 0
        for _ in range(before):
            self.allocate(is_recorded=False)
        while len(self.events) < n_events:
            if len(self.live) < 40 or self.dice.random() < 0.5:
                self.allocate()
            else:
                self.release()
        self.events.append({"action": "oom", "device_free": 148913651712, **self.rest(1 << 48)})

    def rest(self, size):
        self.us += self.dice.randrange(1, 90)
        return {"size": size, "stream": 0, "time_us": self.us, "compile_context": "N/A", "user_metadata": "",
                "frames": self.dice.sample(FRAMES, self.dice.randrange(1, 9))}

    def event(self, action, address, size, **more):
        self.events.append({"action": action, "addr": address, **self.rest(size), **more})
        return self.events[-1]["frames"]

    def allocate(self, is_recorded=True):
        address, size = self.free.pop() if self.free else self.base + self.pages * PAGE, self.dice.randrange(1, PAGE)
        if address == self.base + self.pages * PAGE:
            self.pages += 1
            if is_recorded:
                self.event("segment_map", address, PAGE)
        if is_recorded:
            self.event("alloc", address, size)
        self.lines.append((self.us if is_recorded else START, f"A,{address:x},{size},0,{{}},a"))
        self.live[address] = size
        self.live_peak = max(self.live_peak, sum(self.live.values()))

    def release(self):
        address = self.dice.choice(list(self.live))
        size = self.live.pop(address)
        frames = self.event("free_requested", address, size)
        self.lines.append((self.us, f"F,{address:x},,0,{{}},a"))
        self.event("free_completed", address, size, frames=frames)
        self.free.append(address)

    def csv(self):
        """What was there before is in the order of addresses."""
        first = self.events[0]["time_us"]
        return [line.format(max(us - first, 0)) for us, line in self.lines]

    def snapshot(self):
        blocks = [{"address": address, "size": PAGE, "requested_size": self.live.get(address, 0),
                   "state": "active_allocated" if address in self.live else "inactive", "frames": FRAMES[:5]}
                  for address in range(self.base, self.base + self.pages * PAGE, PAGE)]
        segment = {"device": 0, "address": self.base, "total_size": self.pages * PAGE, "allocated_size": len(self.live) * PAGE,
                   "active_size": len(self.live) * PAGE, "requested_size": sum(self.live.values()), "stream": 0,
                   "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": blocks}
        annotations = [{"stage": stage, "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": START + number}
                       for number, stage in enumerate(("START", "END"))]
        return {"segments": [segment], "device_traces": [self.events, []], "allocator_settings": SETTINGS,
                "external_annotations": annotations}


class WholeLists:
    """A pickler that is not Python's: all items of a container at once, the memo after what is in it, protocol 2."""

    def __init__(self):
        self.data, self.seen, self.kept = bytearray(b"\x80\x02"), {}, []

    def put(self, value):
        if isinstance(value, (list, dict, str)) and id(value) in self.seen:
            self.data += struct.pack("<BI", ord("j"), self.seen[id(value)])
            return
        if isinstance(value, bool):
            self.data += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.data += b"\x8a\x08" + value.to_bytes(8, "little", signed=True)
        elif isinstance(value, float):
            self.data += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            self.data += b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        else:
            self.put_container(value)
        if isinstance(value, (list, dict, str)):
            self.data += struct.pack("<BI", ord("r"), len(self.seen))
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)

    def put_container(self, value):
        begin, end = {list: (b"](", b"e"), dict: (b"}(", b"u"), tuple: (b"(", b"t")}[type(value)]
        self.data += begin
        for item in value.items() if isinstance(value, dict) else value:
            for part in item if isinstance(value, dict) else (item,):
                self.put(part)
        self.data += end


def whole_lists(snapshot):
    pickler = WholeLists()
    pickler.put(snapshot)
    return bytes(pickler.data + b".")


def in_python(snapshot, protocol):
    file = io.BytesIO()
    pickle._Pickler(file, protocol).dump(snapshot)
    return file.getvalue()


def all_pickles(snapshot):
    """(name, pickle)"""
    for protocol in range(2, 6):
        yield f"C, {protocol}", pickle.dumps(snapshot, protocol)
        yield f"Python, {protocol}", in_python(snapshot, protocol)
        yield f"optimised, {protocol}", pickletools.optimize(pickle.dumps(snapshot, protocol))
    yield "whole lists", whole_lists(snapshot)
