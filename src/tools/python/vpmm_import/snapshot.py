# SPDX-License-Identifier: MIT
"""What a snapshot of torch.cuda.memory holds, taken from its lists as they are read, and checked: events of each device in the
order in which they happened, and what was mapped and live when it was taken. Where something hangs is known only after it was
read, so that a list is told by what is in it, and what is wrong with it waits until that counts."""
import struct
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from opaque import RELEASED, TEXT, Opaque
from spool import Event, Events, Spool

DEVICES = 255
ADDRESS_MOST = (1 << 64) - 1
BYTES_MOST = 1 << 56
US_MOST = 1 << 53

# What an event does: to a block, to the memory that is mapped, or nothing that counts.
ALLOC, FREE_REQUESTED, FREE_COMPLETED, MAP, UNMAP, OOM = range(6)
ACTIONS = {"alloc": ALLOC, "free_requested": FREE_REQUESTED, "free_completed": FREE_COMPLETED, "free": FREE_COMPLETED,
           "segment_alloc": MAP, "segment_map": MAP, "segment_free": UNMAP, "segment_unmap": UNMAP, "oom": OOM}
LIVE = "active_allocated"
WORDS = {word.encode(): word for word in (
    *ACTIONS, LIVE, "action", "addr", "size", "stream", "time_us", "device", "address", "total_size", "blocks", "state",
    "requested_size", "segments", "device_traces")}


class NotSnapshot(Exception):
    """The text says where it is not one."""


class Device:
    def __init__(self):
        self.events: Iterable[Event] = ()  # can be gone through backwards, too
        self.mapped: List[Tuple[int, int]] = []  # address, bytes: at the end
        self.live: Dict[int, Tuple[int, int]] = {}  # address: bytes, stream; at the end


class Block(NamedTuple):
    address: Optional[int]  # None: behind the one before
    n_bytes: int
    requested: int
    is_live: bool


def _number(holder: dict, key: str, most: int, default: Any = None) -> int:
    """`default`: where the key is missing; None: it may not be."""
    value = holder.get(key, default)
    if isinstance(value, int) and 0 <= value <= most:
        return value
    raise NotSnapshot(f"'{key}' {value.why}" if isinstance(value, Opaque) else f"'{key}' is not a number from 0 to {most}")


def _dictionary(item: Any) -> dict:
    if item.__class__ is not dict:
        raise NotSnapshot(item.why if isinstance(item, Opaque) else "is no dictionary")
    return item


class Contents:
    """Items of one kind. `trouble`: what is wrong with the first that is not as it should be; no other is taken after it."""

    ITEM = "item"

    def __init__(self):
        self.n = 0
        self.trouble: Optional[str] = None

    def add(self, items: List[Any]) -> None:
        if self.trouble:
            return
        try:
            for item in items:
                self._take(item)
                self.n += 1
        except NotSnapshot as error:
            comma = "" if str(error).startswith("is ") else ("," if str(error).startswith("block") else ":")
            self.trouble = f"{self.ITEM} {self.n}{comma} {error}"

    def _take(self, item: Any) -> None:
        raise NotImplementedError


class Trace(Contents):
    ITEM = "event"

    def __init__(self, spool: Spool):
        super().__init__()
        self.events = Events(spool)
        self._us = 0

    def _take(self, item: Any) -> None:
        holder = _dictionary(item)
        # Events are in order, and those of early versions have no time.
        try:
            action = ACTIONS[holder["action"]]
            us = max(holder.get("time_us", self._us + 1), self._us)
            n_bytes = holder["size"]
            if action != OOM and n_bytes <= BYTES_MOST and us <= US_MOST and holder.get("time_us", 0) >= 0:
                self.events.add(us, holder["addr"], n_bytes, holder.get("stream", 0), action)
                self._us = us
                return
        except (KeyError, TypeError, struct.error):
            pass
        self._take_slowly(holder)

    def _take_slowly(self, holder: dict) -> None:
        """One that is wrong, or that does nothing to memory."""
        name = holder.get("action")
        action = ACTIONS.get(name) if name.__class__ is str else None
        if name.__class__ is not str and name is not TEXT and name is not RELEASED:
            raise NotSnapshot(f"'action' {name.why}" if isinstance(name, Opaque) else "'action' is no word")
        self._us = max(_number(holder, "time_us", US_MOST, self._us + 1), self._us)
        if action is not None:
            address = 0 if action == OOM else _number(holder, "addr", ADDRESS_MOST)
            n_bytes = _number(holder, "size", ADDRESS_MOST if action == OOM else BYTES_MOST)
            self.events.add(self._us, address, n_bytes, _number(holder, "stream", ADDRESS_MOST, 0), action)


class Blocks(Contents):
    ITEM = "block"

    def __init__(self):
        super().__init__()
        self.blocks: List[Block] = []

    def _take(self, item: Any) -> None:
        holder = _dictionary(item)
        n_bytes = _number(holder, "size", BYTES_MOST)
        address = _number(holder, "address", ADDRESS_MOST) if "address" in holder else None
        is_live = holder.get("state") == LIVE
        requested = _number(holder, "requested_size", BYTES_MOST, n_bytes) if is_live else 0
        self.blocks.append(Block(address, n_bytes, requested, is_live))


class Segments(Contents):
    ITEM = "segment"

    def __init__(self):
        super().__init__()
        self.devices: Dict[int, Device] = {}

    def _take(self, item: Any) -> None:
        holder = _dictionary(item)
        device = self.devices.setdefault(_number(holder, "device", DEVICES - 1, 0), Device())
        stream = _number(holder, "stream", ADDRESS_MOST, 0)
        at = _number(holder, "address", ADDRESS_MOST)
        device.mapped.append((at, _number(holder, "total_size", BYTES_MOST)))
        blocks = contents(holder["blocks"], Blocks, "'blocks'") if "blocks" in holder else None
        for block in blocks.blocks if blocks else ():
            address = at if block.address is None else block.address
            if block.is_live:
                device.live[address] = (block.requested, stream)
            at = min(address + block.n_bytes, ADDRESS_MOST)


class Traces(Contents):
    ITEM = "device"

    def __init__(self):
        super().__init__()
        self.traces: List[Any] = []

    def _take(self, item: Any) -> None:
        if self.n == DEVICES:
            raise NotSnapshot(f"is one more than the {DEVICES} that are read")
        if item.__class__ is not Items:
            raise NotSnapshot(item.why if isinstance(item, Opaque) else "is no list")
        self.traces.append(item)


class Others(Contents):
    """Nothing that a snapshot needs."""

    def add(self, items: List[Any]) -> None:
        self.n += len(items)


class Items:
    """A list of the pickle, of which the contents are kept as far as a snapshot needs them."""

    __slots__ = ("_spool", "contents")

    def __init__(self, spool: Spool):
        self._spool = spool
        self.contents: Optional[Contents] = None

    def extend(self, items: List[Any]) -> None:
        if items and self.contents is None:
            self.contents = self._contents_for(items[0])
        if items:
            self.contents.add(items)

    def _contents_for(self, item: Any) -> Contents:
        if item.__class__ is Items:
            return Traces()
        if item.__class__ is not dict:
            return Others()
        if "action" in item:
            return Trace(self._spool)
        if "total_size" in item or "blocks" in item:
            return Segments()
        return Blocks() if "size" in item and "state" in item else Others()


def contents(value: Any, kind: type, where: str) -> Any:
    """Of a list that has what it should; None: it is empty."""
    if value.__class__ is not Items:
        raise NotSnapshot(f"{where} {value.why}" if isinstance(value, Opaque) else f"{where} is no list")
    if value.contents is None:
        return None
    if value.contents.__class__ is not kind:
        raise NotSnapshot(f"{where} has something else than a snapshot has there")
    if value.contents.trouble:
        raise NotSnapshot(value.contents.trouble)
    return value.contents


def devices_of(snapshot: Any) -> Dict[int, Device]:
    """By number. Raises NotSnapshot."""
    if snapshot.__class__ is Items:
        # torch.cuda.memory_snapshot() gives the segments alone.
        snapshot = {"segments": snapshot}
    if snapshot.__class__ is not dict:
        raise NotSnapshot("what it holds is no dict")
    if "segments" not in snapshot and "device_traces" not in snapshot:
        raise NotSnapshot("it has neither 'segments' nor 'device_traces'")
    segments = contents(snapshot["segments"], Segments, "'segments'") if "segments" in snapshot else None
    devices = segments.devices if segments else {}
    traces = contents(snapshot["device_traces"], Traces, "'device_traces'") if "device_traces" in snapshot else None
    for number, items in enumerate(traces.traces if traces else ()):
        try:
            trace = contents(items, Trace, "what it has")
        except NotSnapshot as error:
            raise NotSnapshot(f"device {number}, {error}") from None
        if trace and trace.events:
            devices.setdefault(number, Device()).events = trace.events
    return devices
