# SPDX-License-Identifier: MIT
"""Usage: run_wrappers.py PROGRAM SCENE [SEED [ROUNDS]]
Runs a scene of test-stress-wrappers on the adversarial simulated device, and judges what it leaves: its exit, the
statistics of each process that had a pool, and every dump."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "preload"))
import reports

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


def check_statistics(scene, texts):
    check(len(texts) == SCENES[scene][1], f"{len(texts)} processes of {scene} had a pool")
    for text in texts:
        told = json.loads(text)
        for device in told["devices"]:
            check(device["mallocs"] > 0, f"nothing was served: {text}")
            check((device["audit"], device["live_bytes"]) == (0, 0), f"broken, or something is left: {text}")
        if scene in ("mixed", "forks"):
            plain, ordered = told["requests"]["cudaMalloc"], told["requests"]["cudaMallocAsync"]
            check(len(told["devices"]) == 2, f"not both devices: {text}")
            check(min(plain["pool"], plain["small"], ordered["pool"], ordered["small"], ordered["capturing"],
                      ordered["explicit_pool"]) > 0, f"not every way was gone: {text}")
            check(all(device["stitches"] for device in told["devices"]), f"nothing moved: {text}")


def check_dumps(scene, text):
    n = 0
    for dump in reports.dumps(text):
        n += 1
        for device in dump["devices"]:
            check(reports.is_ordered(device), f"regions out of order: {device}")
    check(n > 0 or scene not in ("mixed", "forks"), "no dump was written")


def run(program, scene, arguments):
    with tempfile.TemporaryDirectory(prefix="vpmm-stress-") as folder:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VPMM_")}
        command = [program, scene, *arguments]
        done = subprocess.run(command, env={**kept, **ENVIRONMENT, **KEEPS_LEAKS,
                                            "VPMM_DUMP": os.path.join(folder, "dump"),
                                            "VPMM_STATS": os.path.join(folder, "stats-%p.json")})
        check(done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}")
        names = os.listdir(folder)
        check_statistics(scene, [read(folder, name) for name in names if name.startswith("stats-")])
        check_dumps(scene, read(folder, "dump") if "dump" in names else "")


def main():
    program, scene, *arguments = sys.argv[1:]
    for seed in range(1, SCENES[scene][0] + 1):
        run(program, scene, arguments or [str(seed)])


main()
