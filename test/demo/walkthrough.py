#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the walkthrough program under the preload, prints its region map after each call and tells what that shows; with
--check it also fails where layout, moved or created pages, held memory or address space are not as
docs/DESIGN.md has them for that number of pages."""
import argparse
import json
import os
import subprocess
import sys

import story

CALLS = ["+10", "+1", "-10", "+4", "+11", "end"]
MARKS = {"live": "", "free": "-", "hole": "*", "zombie": "z", "busy": "?", "quarantined": "!"}
MAPPED = ("live", "free", "busy")
PARTS = ["live", "reusable", "hole", "zombie", "busy", "quarantined"]
LIVE_PAGES = 16
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Wrong(Exception):
    """What the program or the library did is not what was expected."""


def parse_size(text):
    digits = text.rstrip("KMGTkmgt")
    return int(digits) * UNITS[text[len(digits):].upper()]


def print_size(size):
    unit = max((unit for unit in UNITS if size % UNITS[unit] == 0), key=UNITS.get)
    return f"{size // UNITS[unit]} {unit + 'iB' if unit else 'bytes'}"


def expected(pages):
    """Case, layout after the fourth call, most pages that the fifth may move, and pages that it creates."""
    rest = pages - 11
    low = [(4, "live"), (6, "free"), (1, "live"), (rest, "free")]
    high = [(10, "free"), (1, "live"), (4, "live"), (rest - 4, "free")]
    if rest >= 11:
        return "A", low, 0, 0
    if rest == 10:
        return "B, tie", low, 11, 0
    if rest >= 5:
        return "B", high, 11, 0
    if rest == 4:
        return "C", high, 10, 1
    return "D", low, 6 + rest, 16 - pages


class Step:
    """One call and the map after it."""

    def __init__(self, call, address, dump):
        self.call, self.address = call, address
        devices = dump["devices"]
        if len(devices) != 1:
            raise Wrong(f"{len(devices)} devices have a pool after {call}")
        self.device = devices[0]
        self.page = self.device["page_bytes"]
        self.regions = [(int(region["address"], 16), region["pages"], region["state"])
                        for region in self.device["regions"]]

    def metric(self, name):
        """In pages."""
        return self.device[f"{name}_bytes"] // self.page

    def used_regions(self):
        """All but the hole that ends the address space."""
        return self.regions[:-1] if self.regions and self.regions[-1][2] == "hole" else self.regions

    def layout(self):
        return [(pages, state) for _, pages, state in self.used_regions()]

    def notation(self):
        text = ""
        for address, pages, state in self.used_regions():
            is_new = self.call[0] == "+" and address == self.address and state == "live"
            text += f"[{'+' if is_new else MARKS[state]}{pages}]"
        return text or "[...]"

    def page_addresses(self, states):
        return {address + i * self.page for address, pages, state in self.regions if state in states
                for i in range(pages)}


def moved_pages(before, after):
    """Pages that are no longer where they were."""
    return len(before.page_addresses(MAPPED) - after.page_addresses(MAPPED))


def parse_steps(output):
    """The program's lines, each followed by the dump that its signal made; what else was said goes to standard error."""
    decoder, steps, at = json.JSONDecoder(), [], 0
    call = None
    while at < len(output):
        if output.startswith('{"vpmm_dump"', at):
            dump, at = decoder.raw_decode(output, at)
            if call is None:
                raise Wrong("a dump without a call")
            steps.append(Step(call[0], int(call[1], 16), dump))
            call = None
            continue
        line, _, _ = output[at:].partition("\n")
        at += len(line) + 1
        if line.startswith("call "):
            call = line.split()[1:]
        elif line.strip():
            print(line, file=sys.stderr)
    if [step.call for step in steps] != CALLS:
        raise Wrong(f"expected a map after each of {CALLS}, got {[step.call for step in steps]}; is the preload loaded?")
    return steps


def run_program(arguments):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("VPMM_") and name != "LD_PRELOAD"}
    environment.update(LD_PRELOAD=os.path.abspath(arguments.preload), VPMM_PAGES=str(arguments.pages),
                       VPMM_PAGE_SIZE=str(arguments.page), VPMM_EXTENT="1", VPMM_DUMP_FORMAT="json")
    if arguments.simulator:
        environment["LD_LIBRARY_PATH"] = os.path.abspath(arguments.simulator)
        environment["VPMM_SIM_BYTES"] = str((max(arguments.pages, LIVE_PAGES) + 8) * arguments.page)
        environment["VPMM_SIM_STRICT"] = "2"
    process = subprocess.run([arguments.program, str(arguments.page)], env=environment, text=True, timeout=120,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if process.returncode != 0:
        raise Wrong(f"the program ended with {process.returncode}:\n{process.stdout}")
    return parse_steps(process.stdout)


def check(steps, pages):
    fourth, fifth, end = steps[3:6]
    _, layout, moved_most, created = expected(pages)
    layout = [part for part in layout if part[0]]
    demands = [
        ("live pages", fifth.metric("live"), LIVE_PAGES),
        ("held pages", fifth.metric("held"), max(pages, LIVE_PAGES)),
        ("layout after the fourth call", fourth.layout(), layout),
        ("pages created by the fifth call", fifth.metric("held") - fourth.metric("held"), created),
        ("live pages at the end", end.metric("live"), 0),
    ]
    for step in steps:
        demands.append((f"address space accounted for after {step.call}", sum(map(step.metric, PARTS)),
                        step.metric("reserved")))
    for what, is_so, should_be in demands:
        if is_so != should_be:
            raise Wrong(f"{what}: {is_so}, not {should_be}")
    if moved_pages(fourth, fifth) > moved_most:
        raise Wrong(f"the fifth call moved {moved_pages(fourth, fifth)} pages, more than {moved_most}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=18)
    parser.add_argument("--page", type=parse_size, default=parse_size("1G"))
    parser.add_argument("--program", required=True)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--simulator", help="folder of the simulated libcuda.so.1; without it, the machine's driver")
    parser.add_argument("--device", default="the simulated device", help="what to call the device")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.pages < 11:
        parser.error("the first two calls alone take 11 pages: --pages must be at least 11")
    print(f"{arguments.pages} pages of {print_size(arguments.page)} on {arguments.device}", flush=True)
    try:
        steps = run_program(arguments)
        story.tell(steps, moved_pages(*steps[3:5]), print_size(steps[0].page))
        if arguments.check:
            check(steps, arguments.pages)
    except Wrong as wrong:
        sys.exit(f"walkthrough: {wrong}")


if __name__ == "__main__":
    main()
