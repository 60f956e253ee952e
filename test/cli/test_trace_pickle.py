# SPDX-License-Identifier: MIT
"""How snapshots of PyTorch are read: whatever pickler wrote them, in memory that does not grow with their history, and what is
damaged or hostile is refused without a crash."""
import importlib.util
import io
import json
import pickle
import random
import subprocess
import sys
import tempfile

import torch_snapshot
from tracing import Case, arguments, main

IMPORTER = arguments.root / "src" / "tools" / "python" / "vpmm_import"
sys.path.insert(0, str(IMPORTER))

import plain_pickle  # noqa: E402
import snapshot as reader  # noqa: E402
from spool import Spool  # noqa: E402

specification = importlib.util.spec_from_file_location("importer", IMPORTER / "__main__.py")
importer = importlib.util.module_from_spec(specification)
specification.loader.exec_module(importer)

MIB = 1 << 20
# Runs the importer, and tells at last the most memory that it had, in KiB, by the name in /proc/PID/status.
WATCHED = """
import atexit, re, runpy, sys
atexit.register(lambda: print(re.search(sys.argv[2] + r":\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Picklers(Case):
    def csv(self, data):
        return self.output("convert", "-", "-o", "-", "--to", "csv", data=data).decode().splitlines()

    def assert_csv(self, lines, job):
        """What was there before is in no order."""
        self.assertEqual(sorted(lines[:job.before]) + lines[job.before:], job.csv())

    def test_a_snapshot_as_they_are(self):
        job = torch_snapshot.Job(3000)
        data = pickle.dumps(job.snapshot())
        self.assert_csv(self.csv(data), job)
        found = json.loads(self.succeed("summary", "-", "--json", data=data))
        self.assertEqual(found["live_peak"]["bytes"], job.live_peak)
        self.assertEqual(found["held_peak"]["bytes"], job.pages * torch_snapshot.PAGE)
        self.assertEqual(found["at_end"]["bytes"], sum(job.live.values()))
        self.assertEqual((found["failed"], found["frees_unknown"]), (1, 0))

    def test_every_pickler_says_the_same(self):
        job = torch_snapshot.Job(2600)
        for name, data in torch_snapshot.all_pickles(job.snapshot()):
            with self.subTest(name):
                self.assert_csv(self.csv(data), job)

    def test_words_that_are_told_each_time(self):
        job = torch_snapshot.Job(300)
        snapshot = job.snapshot()
        loaded = json.loads(json.dumps(snapshot))
        self.assert_csv(self.csv(pickle.dumps(loaded)), job)

    def test_actions_that_are_not_known(self):
        event = {"action": "of tomorrow", "addr": 5, "size": -1, "time_us": 4}
        good = {"action": "alloc", "addr": 64, "size": 8, "stream": 0, "time_us": 5}
        data = pickle.dumps({"segments": [], "device_traces": [[event, dict(event), good]]})
        self.assertEqual(self.csv(data), ["A,40,8,0,0,a"])

    def test_addresses_that_end_beyond_all(self):
        last = (1 << 64) - 4096
        segment = {"device": 0, "address": last, "total_size": 1 << 20, "blocks": []}
        event = {"action": "segment_map", "addr": last - 4096, "size": 8192 + 4096, "stream": 0, "time_us": 5}
        found = json.loads(self.succeed("summary", "-", "--json", data=pickle.dumps(
            {"segments": [segment], "device_traces": [[event]]})))
        self.assertEqual(found["pool"]["grow"], {"times": 1, "bytes": 8192 + 4096})

    def test_what_is_referred_to_again_is_not_there(self):
        event = {"action": "alloc", "addr": 64, "size": 8, "stream": 0, "time_us": 5}
        for snapshot, where in (({"device_traces": [[event, event]]}, "device 0, event 1"),
                                ({"segments": [], "device_traces": [[event]] * 2}, "device 1")):
            line = self.refuse("summary", "-", data=pickle.dumps(snapshot))
            self.assertIn(f"{where} is the same as something before it", line)


class Bounded(Case):
    def peak_bytes(self, data, figure="VmHWM"):
        """Of the importer's memory."""
        path = self.folder / "x.pickle"
        path.write_bytes(data)
        with open(path, "rb") as file, open(self.folder / "out", "wb") as out:
            done = subprocess.run([sys.executable, "-I", "-B", "-c", WATCHED, IMPORTER / "__main__.py", figure],
                                  stdin=file, stdout=out, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        *words, peak_kb = done.stderr.splitlines()
        self.words = "".join(words)
        self.assertIn((done.returncode, len(words)), [(0, 0), (2, 1)], done.stderr)
        return int(peak_kb) * 1024

    def test_memory_does_not_grow_with_the_history(self):
        """By the address space: how much of Python's own files is in memory is the machine's affair."""
        small, large = torch_snapshot.Job(2000).snapshot(), torch_snapshot.Job(30_000).snapshot()
        for write in (pickle.dumps, torch_snapshot.whole_lists):
            grown = -self.peak_bytes(write(small), "VmPeak") + self.peak_bytes(write(large), "VmPeak")
            self.assertEqual(self.words, "")
            self.assertLess(grown, 2 * MIB)

    def test_little_files_take_little_memory(self):
        n = 1_000_000
        doubled = b"\x80\x02]q\x00" + b"".join(b"(" + b"h%c" % number * 9 + b"tq%c" % (number + 1) for number in range(250))
        for data in (b"]" * n, b"(" * n, b"}" * n, b")" + b"\x85" * n, b"K\x01" * n, b"](" + b"}" * n, b"](" + b"]" * n + b"e.",
                     b"]" * n + b"a" * (n - 1) + b".", b"}" * n + b"K\x01s." * n, b"]r\xff\xff\xff\x7f.",
                     b"]p999999999999999999\n.", b"\x8c\x06action" + b"\x94" * n + b".", b"](\x8c\x06action\x94" + b"h\x00" * n + b"e.",
                     b"\x8b\xff\xff\xff\x7f.", b"X\xff\xff\xff\xff.", b"\x8d" + b"\xff" * 8 + b".", b"\x95" + b"\xff" * 8 + b".",
                     doubled + b"."):
            self.assertLess(self.peak_bytes(b"\x80\x04" + data), 64 * MIB, data[:8])

    def test_words_beyond_what_is_kept(self):
        words = b"(\x8c\x06action\x94\x8c\x04addr\x94\x8c\x04size\x94" + b"\x8c\x05alloc\x94" * ((1 << 16) + 2) + b"t"
        for event in (b"}(\x8c\x06actionj%b\x8c\x04addrK\x40\x8c\x04sizeK\x08u", b"}(h\x00j%bh\x01K\x40h\x02K\x08u"):
            for number, expected in ((3, ""), ((1 << 16) + 1, "'action' is a word from before")):
                data = b"}(\x8c\x01x" + words + b"\x8c\x0ddevice_traces]]" + event % number.to_bytes(4, "little") + b"aau."
                self.peak_bytes(b"\x80\x04" + data)
                self.assertIn(expected, self.words)
                self.assertEqual(bool(self.words), bool(expected), self.words)


class Damaged(Case):
    def read(self, data):
        """What the reader takes it for; None: it refuses it, by one of the two errors that it has."""
        with tempfile.TemporaryFile() as file, Spool() as spool:
            file.write(data)
            file.seek(0)
            try:
                devices = reader.devices_of(plain_pickle.Walk(file, reader.WORDS, lambda: reader.Items(spool)).run())
                importer.write(devices, io.BytesIO())
            except (plain_pickle.NotPlain, reader.NotSnapshot) as error:
                self.assertTrue(str(error))
                return None
            return {number: (list(device.events), device.mapped, device.live) for number, device in devices.items()}

    def test_cut_off_anywhere(self):
        for data in (pickle.dumps(torch_snapshot.Job(30).snapshot()), torch_snapshot.whole_lists(torch_snapshot.Job(20).snapshot())):
            self.assertIsNotNone(self.read(data))
            for length in range(0, len(data), 3):
                self.assertIsNone(self.read(data[:length]), length)

    def test_changed_anywhere(self):
        dice = random.Random(7)
        sources = [data for _, data in torch_snapshot.all_pickles(torch_snapshot.Job(25, before=1).snapshot())]
        codes = b"().]}KMJ\x8a\x8bXNGhjqrpgaesutld\x85\x86\x87\x88\x89\x8c\x8d\x8f\x90\x91\x93\x94\x95\x80cRbioQ2 01"
        n_read = 0
        for _ in range(2500):
            data = bytearray(dice.choice(sources))
            for _ in range(dice.randrange(1, 6)):
                at, n = dice.randrange(len(data)), dice.randrange(1, 12)
                change = dice.randrange(4)
                if change == 0:
                    data[at] = dice.choice(codes)
                elif change == 1:
                    data[at] = dice.randrange(256)
                elif change == 2:
                    del data[at:at + n]
                else:
                    data[at:at] = data[(other := dice.randrange(len(data))):other + n]
            n_read += self.read(bytes(data)) is not None
        self.assertGreater(n_read, 100)

    def test_a_piece_at_a_time(self):
        """Wherever the file is divided when it is read, it says the same."""
        piece = plain_pickle.PIECE
        self.addCleanup(setattr, plain_pickle, "PIECE", piece)
        for name, data in torch_snapshot.all_pickles(torch_snapshot.Job(1300).snapshot()):
            plain_pickle.PIECE = piece
            whole = self.read(data)
            for plain_pickle.PIECE in (plain_pickle.MARGIN + 1, 997):
                self.assertEqual(self.read(data), whole, name)

    def test_it_is_what_was_pickled(self):
        snapshot = torch_snapshot.Job(400).snapshot()
        taken = self.read(pickle.dumps(snapshot))[0]
        events = [(event["time_us"], event["addr"], event["size"], event["action"]) for event in snapshot["device_traces"][0]
                  if event["action"] != "oom"]
        names = {number: name for name, number in reader.ACTIONS.items() if name not in ("free", "segment_alloc", "segment_free")}
        self.assertEqual([(us, address, size, names[action]) for us, address, size, _, action in taken[0][:-1]], events)
        self.assertEqual(taken[1], [(segment["address"], segment["total_size"]) for segment in snapshot["segments"]])
        self.assertEqual(taken[2], {block["address"]: (block["requested_size"], 0) for block in snapshot["segments"][0]["blocks"]
                                    if block["state"] == "active_allocated"})


if __name__ == "__main__":
    main()
