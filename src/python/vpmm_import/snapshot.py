# SPDX-License-Identifier: MIT
"""What a snapshot of torch.cuda.memory holds, taken out of the containers and checked: events of each device in the order in
which they happened, and what was mapped and live when it was taken."""
from typing import Any, Dict, List, NamedTuple, Tuple

DEVICES = 255
ADDRESS_MOST = (1 << 64) - 1
BYTES_MOST = 1 << 56
US_MOST = 1 << 53

# What an event does: to a block, to the memory that is mapped, or nothing that counts.
ALLOC, FREE_REQUESTED, FREE_COMPLETED, MAP, UNMAP, OOM = range(6)
ACTIONS = {"alloc": ALLOC, "free_requested": FREE_REQUESTED, "free_completed": FREE_COMPLETED, "free": FREE_COMPLETED,
           "segment_alloc": MAP, "segment_map": MAP, "segment_free": UNMAP, "segment_unmap": UNMAP, "oom": OOM}


class NotSnapshot(Exception):
    """The text says where it is not one."""


class Event(NamedTuple):
    us: int
    action: int
    address: int
    n_bytes: int
    stream: int


class Device(NamedTuple):
    events: List[Event]
    mapped: List[Tuple[int, int]]  # address, bytes: at the end
    live: Dict[int, Tuple[int, int]]  # address: bytes, stream; at the end


def _is(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise NotSnapshot(f"{where} is no {kind.__name__}")
    return value


def _number(holder: dict, key: str, most: int, where: str, default: int = 0) -> int:
    value = holder.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise NotSnapshot(f"{where}: '{key}' is not a number from 0 to {most}")
    return value


def _event(holder: Any, before_us: int, where: str) -> Event:
    """`before_us`: the time of the one before. Events are in order, and those of early versions have no time."""
    _is(holder, dict, where)
    action = ACTIONS.get(_is(holder.get("action"), str, f"{where}: 'action'"))
    us = max(_number(holder, "time_us", US_MOST, where, before_us + 1), before_us)
    if action is None:
        return Event(us, -1, 0, 0, 0)
    address = 0 if action == OOM else _number(holder, "addr", ADDRESS_MOST, where, -1)
    bytes_most = ADDRESS_MOST if action == OOM else BYTES_MOST
    return Event(us, action, address, _number(holder, "size", bytes_most, where, -1),
                 _number(holder, "stream", ADDRESS_MOST, where))


def _events(trace: Any, where: str) -> List[Event]:
    events, us = [], 0
    for number, holder in enumerate(_is(trace, list, where)):
        event = _event(holder, us, f"{where}, event {number}")
        us = event.us
        if event.action >= 0:
            events.append(event)
    return events


def _add_segment(holder: Any, devices: Dict[int, Device], where: str) -> None:
    _is(holder, dict, where)
    number = _number(holder, "device", DEVICES - 1, where)
    device = devices.setdefault(number, Device([], [], {}))
    stream = _number(holder, "stream", ADDRESS_MOST, where)
    at = _number(holder, "address", ADDRESS_MOST, where, -1)
    device.mapped.append((at, _number(holder, "total_size", BYTES_MOST, where, -1)))
    for block_number, block in enumerate(_is(holder.get("blocks", []), list, f"{where}: 'blocks'")):
        place = f"{where}, block {block_number}"
        _is(block, dict, place)
        n_bytes = _number(block, "size", BYTES_MOST, place, -1)
        address = _number(block, "address", ADDRESS_MOST, place, at)
        if block.get("state") == "active_allocated":
            device.live[address] = (_number(block, "requested_size", BYTES_MOST, place, n_bytes), stream)
        at = min(address + n_bytes, ADDRESS_MOST)


def devices_of(snapshot: Any) -> Dict[int, Device]:
    """By number. Raises NotSnapshot."""
    if isinstance(snapshot, list):
        # torch.cuda.memory_snapshot() gives the segments alone.
        snapshot = {"segments": snapshot}
    _is(snapshot, dict, "what it holds")
    if "segments" not in snapshot and "device_traces" not in snapshot:
        raise NotSnapshot("it has neither 'segments' nor 'device_traces'")
    devices: Dict[int, Device] = {}
    for number, holder in enumerate(_is(snapshot.get("segments", []), list, "'segments'")):
        _add_segment(holder, devices, f"segment {number}")
    traces = _is(snapshot.get("device_traces", []), list, "'device_traces'")
    if len(traces) > DEVICES:
        raise NotSnapshot(f"it has {len(traces)} devices, and at most {DEVICES} are read")
    for number, trace in enumerate(traces):
        events = _events(trace, f"device {number}")
        if events:
            devices.setdefault(number, Device([], [], {})).events.extend(events)
    return devices
