#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/search in a tree of its own, with a stand-in for the model: how numbers are read, and what an interrupt leaves."""
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1])
PATIENCE_SECONDS = 60
NOTHING_IS_BUILT = """root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for name in need_build_tools need_cuda_headers need_cmocka configure build; do
    eval "$name() { :; }"
done
fail() {
    echo "$*" >&2
    exit 1
}
"""


class Script(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="vpmm-test-")
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/search", self.root / "scripts")
        (self.root / "scripts/lib.sh").write_text(NOTHING_IS_BUILT)

    def command(self, model, *words):
        """`model`: the commands of a shell that stand for it."""
        program = self.root / "build-test/test/model/model"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{model}\n")
        program.chmod(0o755)
        return [self.root / "scripts/search", *words]

    def kill_group(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)

    def test_numbers_are_decimal(self):
        done = subprocess.run(self.command('echo "$*"', "08", "--seed", "09", "--jobs", "02"), capture_output=True, text=True,
                              check=False, timeout=PATIENCE_SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("scripts/search 8 --seed 9 --jobs 2\n", done.stdout)
        for seed in "9", "1000000009":
            self.assertRegex(done.stdout, rf"--seconds 480 .*--seed {seed}\n")

    def test_a_second_one_leaves_the_first_its_folder(self):
        reader, writer = os.pipe()
        command = self.command(f"echo 'model: 7 operations, 3 programs'; echo >/proc/self/fd/{writer}; exec sleep 600", "1",
                               "--jobs", "1")
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[writer], start_new_session=True)
        os.close(writer)
        self.addCleanup(os.close, reader)
        self.addCleanup(first.wait, PATIENCE_SECONDS)
        self.addCleanup(self.kill_group, first.pid)
        os.read(reader, 1)
        log = self.root / "build-search/job-0.log"
        second = subprocess.Popen([command[0], "1", "--jobs", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, start_new_session=True)
        self.addCleanup(second.stderr.close)
        self.addCleanup(self.kill_group, second.pid)
        self.assertEqual(second.wait(PATIENCE_SECONDS), 1)
        self.assertIn("another search", second.stderr.read())
        self.assertEqual(log.read_text(), "model: 7 operations, 3 programs\n")

    def test_an_interrupt_leaves_nothing_running(self):
        """Whoever still runs keeps the pipe open."""
        reader, writer = os.pipe()
        command = self.command(f"echo >/proc/self/fd/{writer}; exec sleep 600", "1", "--jobs", "2")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[writer], start_new_session=True)
        os.close(writer)
        self.addCleanup(os.close, reader)
        self.addCleanup(self.kill_group, process.pid)
        heard = b""
        while len(heard) < 2:
            heard += os.read(reader, 2)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_SECONDS)
        self.assertEqual(select.select([reader], [], [], PATIENCE_SECONDS)[0], [reader])
        self.assertEqual(os.read(reader, 1), b"")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
