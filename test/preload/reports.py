# SPDX-License-Identifier: MIT
"""What tests ask about the dumps of a process."""
import json


def dumps(text):
    """The JSON objects of a file, each whole."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        told, end = decoder.raw_decode(text, at)
        yield told
        at = end + 1


def is_ordered(device):
    """Whether the regions follow one another and none reaches into the next."""
    end = 0
    for region in device["regions"]:
        address = int(region["address"], 16)
        if address < end:
            return False
        end = address + region["pages"] * device["page_bytes"]
    return True


def is_tiled(device):
    """Whether the regions follow one another without a gap, in one root."""
    regions = device["regions"]
    bytes_ = sum(region["pages"] for region in regions) * device["page_bytes"]
    first, last = (int(regions[i]["address"], 16) for i in (0, -1))
    end = last + regions[-1]["pages"] * device["page_bytes"]
    return is_ordered(device) and end - first == bytes_ == device["reserved_bytes"]
