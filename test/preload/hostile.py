# SPDX-License-Identifier: MIT
"""Processes of the same user that ask an exporter for memory they have no handle of, or that keep others from asking."""
import array
import os
import socket
import struct
import threading
import time
import unittest

import harness
from sharing import INVALID_VALUE, LAZY, MIB, ODD, OK, PAGES, Process

PAGE = 2 * MIB
HANDLE = struct.Struct("<QHHIII16sQQQ")
REQUEST = struct.Struct("<IIQQQi4xQ16s")
REPLY = struct.Struct("<IIQQQ")
MESSAGE_MAGIC = 0x324d5056
LEASE, EXTENTS = 1, 2
IDLE, HOSTILE = 300, 3000


class Handle:
    """What the 64 bytes say."""

    def __init__(self, digits):
        fields = HANDLE.unpack(bytes.fromhex(digits))
        _, self.version, self.device, self.process, self.door, _, self.seal, self.address, self.id, self.bytes = fields


def door_of(process):
    """The name of its socket, as everybody can read it."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        names = [line.split()[-1] for line in file if f"@vpmm-{process.process.pid}-" in line]
    return "\0" + names[0][1:]


def connect(name):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(name)
    connection.settimeout(30)
    return connection


def ask(connection, wish, address, number, seal=bytes(16), start=0):
    """Reply and descriptors; nothing where the connection was ended."""
    try:
        connection.send(REQUEST.pack(MESSAGE_MAGIC, wish, address, number, 1, 0, start, seal))
        data, parts, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(64 * 4))
    except (BrokenPipeError, ConnectionResetError):
        return None, []
    descriptors = array.array("i")
    for _, _, content in parts:
        descriptors.frombytes(content)
    return (data or None), list(descriptors)


def extents_of(handle, name):
    """The bytes of all extents that the holder of a handle is sent."""
    total = 0
    with connect(name) as connection:
        reply, _ = ask(connection, LEASE, handle.address, handle.id, handle.seal)
        _, status, start, end, _ = REPLY.unpack(reply)
        assert status == 0, status
        while start < end:
            reply, descriptors = ask(connection, EXTENTS, handle.address, handle.id, start=start)
            n = REPLY.unpack_from(reply)[4]
            assert n == len(descriptors) > 0
            sizes = struct.unpack_from(f"<{n}Q", reply, REPLY.size)
            total += sum(sizes)
            start += sum(sizes)
            for descriptor in descriptors:
                os.close(descriptor)
    return total


class Hostile(unittest.TestCase):
    def exporter(self, *commands, **more):
        exporter = Process(self, **more)
        for command in commands:
            self.assertEqual(exporter.tell(command), [OK], command)
        return exporter

    def test_the_socket_alone_gives_nothing(self):
        exporter = self.exporter("malloc 4", "fill b 0 5")
        handle = Handle(exporter.get(0))
        name = door_of(exporter)
        for number in range(300):
            for seal in bytes(16), bytes([number % 256]) * 16, os.urandom(16):
                with connect(name) as connection:
                    self.assertEqual(ask(connection, LEASE, handle.address, number, seal), (None, []))
        with connect(name) as connection:
            self.assertEqual(ask(connection, EXTENTS, handle.address, handle.id), (None, []))

    def test_a_handle_gives_no_other_block(self):
        exporter = self.exporter("malloc 4", "malloc 4", "malloc 4")
        own, other = Handle(exporter.get(0)), Handle(exporter.get(1))
        self.assertNotEqual(own.seal, other.seal)
        name = door_of(exporter)
        for number in range(100):
            with connect(name) as connection:
                reply, _ = ask(connection, LEASE, own.address, own.id, own.seal)
                self.assertEqual(REPLY.unpack(reply)[1], 0)
                self.assertEqual(ask(connection, LEASE, other.address, number, own.seal), (None, []))

    def test_what_is_sent_holds_what_was_exported_and_nothing_else(self):
        exporter = self.exporter("malloc 62", "free 0", "malloc 2")
        exporter.get(1)
        for i, mib in enumerate((2, 20, 5, 62, 2)):
            self.assertEqual(exporter.tell(f"malloc {mib}"), [OK])
            handle = Handle(exporter.get(2 + i))
            pages = -(-(mib * MIB + ODD) // PAGE)
            self.assertEqual(extents_of(handle, door_of(exporter)), pages * PAGE)
        self.assertEqual(exporter.errors.count("other memory"), 1)

    def test_sharing_extents_is_said_once(self):
        exporter = self.exporter("malloc 62", "free 0", "malloc 2", "malloc 2", **PAGES)
        self.assertEqual(extents_of(Handle(exporter.get(1)), door_of(exporter)), 32 * MIB)
        exporter.get(2)
        self.assertEqual(exporter.errors.count("\n"), 1)
        self.assertIn("can reach 28 MiB of other memory", exporter.errors)
        self.assertIn("VPMM_IPC_SHARED=refuse", exporter.errors)

    def test_sharing_extents_can_be_refused(self):
        more = dict(VPMM_IPC_SHARED="refuse", **PAGES)
        exporter = self.exporter("malloc 62", "free 0", "malloc 2", **more)
        self.assertEqual(extents_of(Handle(exporter.get(1)), door_of(exporter)), 4 * MIB)
        self.assertEqual(exporter.errors, "")
        exporter = self.exporter("malloc 62", "free 0", "malloc 2", VPMM_LIMIT="64M", **more)
        self.assertEqual(exporter.tell("get 1 0"), [INVALID_VALUE])
        self.assertIn("cudaIpcGetMemHandle fails", exporter.errors)

    def test_idle_connections_keep_nobody_out(self):
        exporter, importer = self.exporter("malloc 4", "fill b 0 5"), Process(self)
        handle, name = exporter.get(0), door_of(exporter)
        idle = [connect(name) for _ in range(IDLE)]
        begin = time.monotonic()
        self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
        print(f"beside {IDLE} idle connections: {(time.monotonic() - begin) * 1000:.1f} ms")
        self.assertEqual(importer.tell("read o 0 0"), [OK, 5])
        for connection in idle:
            connection.close()

    def test_a_storm_of_connections_keeps_nobody_out(self):
        exporter, importer = self.exporter("malloc 4"), Process(self)
        handle, name = exporter.get(0), door_of(exporter)
        is_over, n, longest = threading.Event(), [0], 0

        def storm():
            while not is_over.is_set():
                with connect(name) as connection:
                    try:
                        if n[0] % 2:
                            connection.send(bytes(n[0] % 90))
                    except (BrokenPipeError, ConnectionResetError):
                        pass
                n[0] += 1

        thread = threading.Thread(target=storm, daemon=True)
        begin = time.monotonic()
        thread.start()
        while n[0] < HOSTILE and thread.is_alive():
            before = time.monotonic()
            self.assertEqual(importer.tell(f"open {handle} {LAZY}"), [OK, 0])
            longest = max(longest, time.monotonic() - before)
            self.assertEqual(importer.tell("close 0"), [OK])
        is_over.set()
        thread.join()
        self.assertGreaterEqual(n[0], HOSTILE)
        print(f"{n[0] / (time.monotonic() - begin):.0f} connections a second; the longest opening "
              f"{longest * 1000:.1f} ms")

    def test_a_handle_of_another_version_is_refused(self):
        exporter, importer = self.exporter("malloc 4"), Process(self)
        digits = exporter.get(0)
        older = digits[:16] + "0100" + digits[20:]
        self.assertEqual(importer.tell(f"open {older} {LAZY}"), [INVALID_VALUE, -1])
        self.assertIn("another version", importer.errors)


if __name__ == "__main__":
    harness.main()
