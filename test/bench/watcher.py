# SPDX-License-Identifier: MIT
"""Watches a device's used memory by NVML, every other millisecond, in a process of its own that never makes a context.

Each line on standard input is answered by "NOW PEAK SAMPLES": bytes now, the most since the last answer, and how often it
looked. Ends with its standard input. The first argument is the NVML library, the second a device: its number or UUID."""
from __future__ import annotations

import ctypes
import select
import sys

PERIOD_S = 0.002


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Device:
    """One device as NVML sees it. Raises OSError when it cannot be asked."""

    def __init__(self, library: str, name: str) -> None:
        self._nvml = ctypes.CDLL(library)
        self._handle = ctypes.c_void_p()
        self._ask("nvmlInit_v2")
        if name.isdigit():
            self._ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(name)), ctypes.byref(self._handle))
        else:
            self._ask("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self._handle))

    def used_bytes(self) -> int:
        memory = Memory()
        self._ask("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return memory.used

    def _ask(self, name: str, *arguments: object) -> None:
        code = getattr(self._nvml, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} answered {code}")


def watch(device: Device) -> None:
    peak, n_samples = 0, 0
    while True:
        asked, _, _ = select.select([sys.stdin], [], [], PERIOD_S)
        used = device.used_bytes()
        peak, n_samples = max(peak, used), n_samples + 1
        if asked:
            if not sys.stdin.readline():
                return
            print(used, peak, n_samples, flush=True)
            peak, n_samples = used, 0


if __name__ == "__main__":
    watch(Device(sys.argv[1], sys.argv[2]))
