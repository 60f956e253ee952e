#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the JSON forms that the program named writes, as any program would, and compares every value."""
import json
import subprocess
import sys

GIB = 1 << 30


def shown(what):
    value = json.loads(subprocess.run([sys.argv[1], what], stdout=subprocess.PIPE, check=True).stdout)
    assert value.pop("pid") == 4711
    return value


def region(address, state, pages, size, stream, fence, fence_kind):
    return {"address": hex(address), "state": state, "pages": pages, "requested_bytes": size,
            "stream": stream, "fence": fence, "fence_kind": fence_kind}


def device(number, page, figures, regions, **classes):
    names = ["held_bytes", "reserved_bytes", "live_bytes", "reusable_bytes", "hole_bytes", "zombie_bytes", "busy_bytes",
             "quarantined_bytes", "limit_bytes", "extents", "mappings"]
    return {"device": number, "page_bytes": page, **dict(zip(names, figures)), **classes, "regions": regions}


first = 0x7f0000000000
regions = [
    region(first, "live", 4, 4 * GIB - 5, 7, 0, "complete"),
    region(first + 4 * GIB, "free", 6, 0, 9, 12, "stream"),
    region(first + 10 * GIB, "live", 1, GIB, 0, 3, "context"),
    region(first + 11 * GIB, "hole", 10, 0, 0, 0, "complete"),
    region(first + 21 * GIB, "zombie", 2, 0, 0, 2**64 - 1, "joined"),
    region(first + 23 * GIB, "busy", 3, 0, 0, 0, "complete"),
    region(first + 26 * GIB, "hole", 8166, 0, 0, 0, "complete"),
    region(0x700000000000, "quarantined", 1, 0, 0, 1, "parked"),
]
figures = [n * GIB for n in (17, 8193, 5, 6, 8176, 2, 3, 1, 20)] + [15, 17]
small = [{"class": "fine", "pages": 11, "blocks": 1000000, "requested_bytes": 512000000, "free_bytes": 3 << 20,
          "pages_by_fill": [1, 2, 3, 5]},
         {"class": "wide", "pages": 7, "blocks": 3, "requested_bytes": 14000000, "free_bytes": 1 << 19,
          "pages_by_fill": [0, 0, 0, 7]}]
assert shown("dump") == {"vpmm_dump": 1, "devices": [
    device(0, GIB, figures, regions, small=small), device(3, 2 << 20, [0] * 11, [])], "weights": [
        {"device": 3, "weight_bytes": 40 * GIB, "budget_bytes": 12 * GIB, "held_bytes": 11 * GIB, "resident_bytes": 9 * GIB,
         "ring_bytes": 2 * GIB, "direct_bytes": GIB, "copied_bytes": 300 * GIB, "hits": 70, "misses": 30,
         "pass_ns": 5000000, "stall_ns": 40000, "bound_ns": 4900000}]}
assert shown("nothing") == {"vpmm_dump": 1, "devices": []}
assert shown("stats") == {
    "vpmm_stats": 1, "program": 'a "program"\n\xff',
    "devices": [{"device": 0, "live_bytes": 5 * GIB, "fits": 12, "small": small}, {"device": 1}],
    "requests": {"cudaMalloc": {"POOL": 42, "SMALL": 0, "FULL": 2**64 - 1},
                 "cudaMallocAsync": {"POOL": 0}},
    "weights": [{"device": 1, "live_bytes": 5 * GIB, "fits": 12}]}
