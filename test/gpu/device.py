# SPDX-License-Identifier: MIT
"""What the devices look like from outside, by NVML's figures as nvidia-smi prints them: never through CUDA, so that no
context of this process is counted.
"""
from __future__ import annotations

import shutil
import subprocess
from typing import List


def _query(what: str) -> List[List[str]]:
    """One list of fields a device. Raises ValueError when nvidia-smi cannot be asked."""
    if shutil.which("nvidia-smi") is None:
        raise ValueError("no nvidia-smi")
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"nvidia-smi: {done.stdout.strip()}")
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def count() -> int:
    """How many devices there are; 0 also when nobody can say."""
    try:
        return len(_query("index"))
    except (ValueError, OSError, subprocess.SubprocessError):
        return 0


def describe() -> str:
    """The first device and its driver, in words."""
    name, driver, total_mib = _query("name,driver_version,memory.total")[0]
    return f"{name} ({total_mib} MiB), driver {driver}"


def architecture() -> str:
    """What nvcc calls the first device's."""
    return "sm_" + _query("compute_cap")[0][0].replace(".", "")


def used_mib() -> float:
    """Memory in use on all devices, by everybody."""
    return sum(float(row[0]) for row in _query("memory.used"))
