# SPDX-License-Identifier: MIT
"""Processes that ask each other for device memory. A simulated device belongs to one process, so this file is the other
one: it asks a program that has freed memory, and hears what a program asks that has run out."""
import os
import socket
import struct
import threading
import unittest

import harness
from sharing import MIB, OK, Process

OUT_OF_MEMORY = 2
MESSAGE = struct.Struct("<8sQQ16s")
MAGIC = b"VPMMAPP1"
NEVER_MS = 3_600_000
PATIENCE_S = 60
HELD = 1026 * MIB  # for 1024 MiB and some bytes


def uuid_of(process):
    """Of the simulated device of that process."""
    return b"\0QQQ" + struct.pack("<i", process.process.pid) + b"Q" * 8


def names():
    """Those under which processes of this user listen, as the kernel lists them."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        found = [line.split()[-1] for line in file]
    return [name for name in found if name.startswith(f"@vpmm-memory-{os.geteuid()}-")]


def listens(process):
    """Whether one of the process's sockets is such a one."""
    folder = f"/proc/{process.process.pid}/fd"
    inodes = {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    with open("/proc/net/unix", encoding="utf-8") as file:
        return any(f"socket:[{line.split()[6]}]" in inodes and "@vpmm-memory-" in line for line in list(file)[1:])


def ask(uuid, size):
    """The sum of all answers to one appeal."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.settimeout(PATIENCE_S)
        asking.bind("")
        n, total = 0, 0
        for name in names():
            try:
                asking.sendto(MESSAGE.pack(MAGIC, 77, size, uuid), "\0" + name[1:])
                n += 1
            except ConnectionRefusedError:
                pass
        while n:
            magic, number, given, same = MESSAGE.unpack(asking.recv(200))
            if (magic, number, same) == (MAGIC, 77, uuid):
                n, total = n - 1, total + given
        return total


class Neighbours(unittest.TestCase):
    def start(self, **more):
        return Process(self, **more)

    def test_what_is_free_is_given_to_who_asks(self):
        process = self.start(VPMM_DECAY_MS=NEVER_MS)
        self.assertEqual(process.tell("malloc 1024")[0], OK)
        self.assertEqual(process.tell("free 0")[0], OK)
        self.assertTrue(listens(process))
        self.assertEqual(ask(b"another device!!", 128 * MIB), 0)
        first = ask(uuid_of(process), 128 * MIB)
        self.assertGreaterEqual(first, 128 * MIB)
        self.assertEqual(first + ask(uuid_of(process), 1 << 60), HELD)
        self.assertEqual(process.leave(), "")
        device = process.statistics["devices"][0]
        self.assertEqual((device["trimmed_bytes"], device["held_bytes"], device["audit"]), (HELD, 0, 0))

    def test_what_is_live_is_not_given(self):
        process = self.start(VPMM_DECAY_MS=NEVER_MS)
        self.assertEqual(process.tell("malloc 1024")[0], OK)
        self.assertEqual(ask(uuid_of(process), 1 << 60), 0)

    def test_nobody_listens_where_it_is_switched_off_or_little_is_held(self):
        for more, size in ({"VPMM_DECAY_MS": "off", "VPMM_IDLE_MS": NEVER_MS}, 1024), ({}, 128):
            process = self.start(**more)
            self.assertEqual(process.tell(f"malloc {size}")[0], OK)
            self.assertFalse(listens(process))

    def test_who_has_run_out_asks(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.settimeout(PATIENCE_S)
            listening.bind(f"\0vpmm-memory-{os.geteuid()}-{os.getpid():016x}")
            process = self.start(VPMM_SIM_BYTES=1024 * MIB)
            heard = []

            def answer():
                message, address = listening.recvfrom(200)
                heard.append(MESSAGE.unpack(message))
                listening.sendto(MESSAGE.pack(MAGIC, heard[0][1], 5 * MIB, heard[0][3]), address)

            thread = threading.Thread(target=answer)
            thread.start()
            self.assertEqual(process.tell("malloc 900")[0], OK)
            self.assertEqual(process.tell("malloc 200")[0], OUT_OF_MEMORY)
            thread.join(PATIENCE_S)
            # What the device lacks, and two pages: a 64th of the request and one.
            lacking = 902 + 202 - 1024 + 2 * 2
            self.assertEqual(heard, [(MAGIC, heard[0][1], lacking * MIB, uuid_of(process))])

    def test_who_does_not_answer_is_not_waited_for(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(f"\0vpmm-memory-{os.geteuid()}-{os.getpid():016x}")
            process = self.start(VPMM_SIM_BYTES=1024 * MIB)
            self.assertEqual(process.tell("malloc 900")[0], OK)
            self.assertEqual(process.tell("malloc 200")[0], OUT_OF_MEMORY)
            self.assertEqual(process.tell("free 0")[0], OK)


if __name__ == "__main__":
    harness.main()
