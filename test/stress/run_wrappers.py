# SPDX-License-Identifier: MIT
"""Usage: run_wrappers.py PROGRAM SCENE [SEED [ROUNDS]]
Runs a scene of test-stress-wrappers on the adversarial simulated device, without a trace and with one, each where blocks
share pages and where none do, and judges what it leaves: its exit, the statistics of each process that had a pool, every dump, and the traces."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "preload"))
import reports
import trace_file

# How often a scene runs, each time with another seed; and how many processes of it have a pool.
SCENES = {"cold": (8, 1), "pairs": (1, 1), "mixed": (1, 1), "forks": (1, 1), "fresh": (1, 6)}
ENVIRONMENT = {
    "VPMM_SIM_DEVICES": "2", "VPMM_SIM_BYTES": "512M", "VPMM_SIM_EAGER": "0", "VPMM_SIM_RACES": "1",
    "VPMM_SIM_REUSE_HANDLES": "1", "VPMM_SIM_HANG_MS": "60000", "VPMM_VA_SIZE": "256G", "VPMM_LOG": "error",
    "VPMM_DUMP_FORMAT": "json",
}


# The process ends with its device as it is. What that still has is named only in the library's own mappings, where the
# leak sanitizer does not look.
KEEPS_LEAKS = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def check(holds, what):
    if not holds:
        raise SystemExit(f"run_wrappers.py: {what}")


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def check_statistics(scene, texts, is_shared):
    told_with_pools = [told for told in map(json.loads, texts) if told["devices"]]
    check(len(told_with_pools) == SCENES[scene][1], f"{len(told_with_pools)} processes of {scene} had a pool")
    for told in told_with_pools:
        for device in told["devices"]:
            check(device["mallocs"] > 0, f"nothing was served: {told}")
            check(device["audit"] == 0 and device.get("small_blocks", 0) == 0, f"broken, or something is left: {told}")
            check(device["live_bytes"] == device.get("small_held_bytes", 0), f"something is left: {told}")
        if scene in ("mixed", "forks"):
            plain, ordered = told["requests"]["cudaMalloc"], told["requests"]["cudaMallocAsync"]
            check(len(told["devices"]) == 2, f"not both devices: {told}")
            check(min(plain["pool"], ordered["pool"], ordered["capturing"], ordered["explicit_pool"]) > 0,
                  f"not every way was gone: {told}")
            small = [device["small_mallocs"] for device in told["devices"]] if is_shared else [plain["small"], ordered["small"]]
            check(min(small) > 0, f"no small requests: {told}")
            check(all(device["stitches"] for device in told["devices"]), f"nothing moved: {told}")


def check_dumps(scene, text):
    n = 0
    for dump in reports.dumps(text):
        n += 1
        for device in dump["devices"]:
            check(reports.is_ordered(device), f"regions out of order: {device}")
    check(n > 0 or scene not in ("mixed", "forks"), "no dump was written")


def check_blocks(trace, name):
    """No block of the pool is given out twice, and none is left. CUDA's own may die with contexts and graphs."""
    live = set()
    for entry in trace.of("malloc", "free"):
        if entry.flags & 2 or entry.path in trace_file.REASONS:
            continue
        check(entry.kind == "free" or entry.address not in live, f"{name}: given out twice: {entry}")
        (live.add if entry.kind == "malloc" else live.discard)(entry.address)
    check(not live, f"{name}: {len(live)} blocks are left")


def check_figures(trace, name, device):
    """The heap's work adds up to its statistics."""
    def total(kind):
        return sum(entry.bytes for entry in trace.of(kind) if entry.device == device["device"])
    check(total("grow") == device["created_bytes"] and total("release") == device["released_bytes"] and
          total("stitch") == device["moved_bytes"] and total("grow") - total("release") == device["held_bytes"],
          f"{name}: memory that is missing: {device}")
    paths = [entry.path for entry in trace.of("malloc") if entry.device == device["device"]]
    if device.get("small_mallocs"):
        return  # the heap does not count each of these, and serves pages for several
    for path, key in zip(trace_file.PATHS[1:7], ("cache_hits", "habit_hits", "fits", "revives", "stitches", "grows")):
        check(paths.count(path) == device[key], f"{name}: {paths.count(path)} {path}, but {device[key]} {key}")


def check_traces(folder, names):
    for name in names:
        trace = trace_file.Trace(os.path.join(folder, name))
        check((trace.header["is_ended"], trace.header["dropped"]) == (1, 0), f"{name}: {trace.header}")
        check_blocks(trace, name)
        statistics = name.replace("trace-", "stats-").replace(".bin", ".json")
        if os.path.exists(os.path.join(folder, statistics)):
            for device in json.loads(read(folder, statistics))["devices"]:
                check_figures(trace, name, device)


def run(program, scene, is_traced, is_shared, arguments):
    with tempfile.TemporaryDirectory(prefix="vpmm-stress-") as folder:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VPMM_")}
        command = [program, scene, *arguments]
        done = subprocess.run(command, env={**kept, **ENVIRONMENT, **KEEPS_LEAKS,
                                            "VPMM_MIN_SIZE": "1" if is_shared else "page",
                                            "VPMM_DUMP": os.path.join(folder, "dump"),
                                            "VPMM_STATS": os.path.join(folder, "stats-%p.json"),
                                            "VPMM_TRACE": os.path.join(folder, "trace-%p.bin") if is_traced else ""})
        check(done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}")
        names = os.listdir(folder)
        check_statistics(scene, [read(folder, name) for name in names if name.startswith("stats-")], is_shared)
        check_dumps(scene, read(folder, "dump") if "dump" in names else "")
        check_traces(folder, [name for name in names if name.startswith("trace-")])


def main():
    program, scene, *arguments = sys.argv[1:]
    for seed in range(1, SCENES[scene][0] + 1):
        for is_traced in False, True:
            for is_shared in True, False:
                run(program, scene, is_traced, is_shared, arguments or [str(seed)])


main()
