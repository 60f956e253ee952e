# SPDX-License-Identifier: MIT
"""Reads what the library says of itself: the statistics of a run and a dump of the regions, both JSON.

Unknown members are passed over, so that a newer library can be checked by an older script.
"""
from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List

SERVED = "pool"
DUMP_LIMIT_S = 60.0
GIB = 1 << 30


@dataclass
class Counters:
    """Requests of one run by answer, over all of its processes and both kinds of request."""

    found: bool = False  # any process left statistics behind
    served: int = 0
    passed: Dict[str, int] = field(default_factory=dict)  # reason -> requests
    figures: Dict[str, float] = field(default_factory=dict)  # what else was counted, over all devices
    complaints: List[str] = field(default_factory=list)  # of the library's own audit, or of unreadable files

    def passed_text(self) -> str:
        return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(self.passed.items()))


def read_counters(folder: Path) -> Counters:
    """The sum of all statistics files in `folder`."""
    counters = Counters()
    for path in sorted(folder.glob("stats.*.json")):
        try:
            for statistics in json_values(path.read_text()):
                _add(counters, statistics)
        except (ValueError, OSError) as error:
            counters.complaints.append(f"{path.name}: {error}")
    if "moved_bytes" in counters.figures:
        counters.figures["moved_gib"] = counters.figures["moved_bytes"] / GIB
    return counters


def _add(counters: Counters, statistics: Any) -> None:
    if not isinstance(statistics, dict):
        raise ValueError("not a JSON object")
    counters.found = True
    for answers in statistics.get("requests", {}).values():
        for answer, count in answers.items():
            name = answer.lower().replace("-", "_").replace(" ", "_")
            if name == SERVED:
                counters.served += count
            elif count:
                counters.passed[name] = counters.passed.get(name, 0) + count
    for device in statistics.get("devices", []):
        for key, value in device.items():
            if "audit" in key and value not in (0, "", None, "clean"):
                counters.complaints.append(f"device {device.get('device')}: {key} {value}")
            elif isinstance(value, (int, float)) and key != "device":
                counters.figures[key] = counters.figures.get(key, 0) + value


def json_values(text: str) -> List[Any]:
    """All JSON values in `text`, one after the other. Raises ValueError when the last one is not complete."""
    decoder = json.JSONDecoder()
    values, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        values.append(value)
    return values


def ask_dump(pid: int, wanted: int, path: Path) -> Any:
    """Asks a program for a dump, the `wanted`th in that file, and waits until it is written and its file closed:
    who counts the program's descriptors next must not count that one. Raises ValueError when it never is."""
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + DUMP_LIMIT_S
    while time.monotonic() < deadline:
        try:
            dumps = json_values(path.read_text())
        except (OSError, ValueError):
            dumps = []
        if len(dumps) >= wanted and not has_open(pid, path):
            return dumps[-1]
        time.sleep(0.02)
    raise ValueError(f"no dump within {DUMP_LIMIT_S:.0f} s of SIGUSR1")


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has that file open; one that has ended has not."""
    wanted = path.stat()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return False
    for name in names:
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):
                return True
        except OSError:  # closed since it was listed
            continue
    return False


def live_bytes(device: Any) -> float:
    """What the program has of a device in a dump: of pages that blocks share, as much as these asked for."""
    shared = device.get("small", [])
    pages, asked = (sum(one[name] for one in shared) for name in ("pages", "requested_bytes"))
    return float(device["live_bytes"] - pages * device["page_bytes"] + asked)


def dump_figures(dump: Any) -> Dict[str, float]:
    """What a dump says is live and not yet settled, and how many of its own sums do not add up."""
    figures = {"live_bytes": 0.0, "unsettled_bytes": 0.0, "held_bytes": 0.0, "wrong_sums": 0.0}
    for device in dump["devices"]:
        page_bytes = device["page_bytes"]
        by_state: Dict[str, int] = {}
        for region in device["regions"]:
            state = region["state"]
            by_state[state] = by_state.get(state, 0) + region["pages"] * page_bytes
        figures["live_bytes"] += live_bytes(device)
        figures["unsettled_bytes"] += device["busy_bytes"] + device["quarantined_bytes"]
        figures["held_bytes"] += device["held_bytes"]
        figures["wrong_sums"] += device["live_bytes"] != by_state.get("live", 0)
        figures["wrong_sums"] += device["reserved_bytes"] != sum(by_state.values())
        figures["wrong_sums"] += _overlaps(device["regions"], page_bytes)
    return figures


def _overlaps(regions: List[Any], page_bytes: int) -> int:
    """How often a region begins before the one below it ends. Roots lie anywhere, in any order."""
    wrong, end = 0, 0
    for region in sorted(regions, key=lambda one: int(one["address"], 0)):
        start = int(region["address"], 0)
        wrong += start < end
        end = start + region["pages"] * page_bytes
    return wrong
