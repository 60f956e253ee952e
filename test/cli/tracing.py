# SPDX-License-Identifier: MIT
"""What the tests of `vpmm trace` share: how the command is run, and what its answers must be like."""
import argparse
import subprocess
import tempfile
import unittest
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--root", type=Path, required=True)
parser.add_argument("--build", required=True)
arguments, rest = parser.parse_known_args()
TRACES = arguments.root / "test" / "traces"
NAMES = ["checkpoint", "cupy", "full", "generate", "jax", "pipeline", "side-streams", "streams", "table", "train", "vision"]


def run(*words, data=None):
    """`vpmm trace WORDS`, with `data` on its standard input. Answers are bytes."""
    return subprocess.run([arguments.program, "trace", *map(str, words)], input=data, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=120)


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="vpmm-test-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def succeed(self, *words, data=None):
        """What it writes to standard output."""
        done = run(*words, data=data)
        self.assertEqual((done.returncode, done.stderr), (0, b""), words)
        return done.stdout

    def output(self, *words, data=None):
        """The same, where a form may have no place for something, which the command then says."""
        done = run(*words, data=data)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        self.assertRegex(done.stderr, rb"^(?:vpmm trace: left out, .*\n)?$")
        return done.stdout

    def refuse(self, *words, status=2, data=None):
        """The one line that it says, without the command's name."""
        done = run(*words, data=data)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(done.returncode, status, (words, lines))
        self.assertEqual(done.stdout, b"")
        self.assertTrue(lines and lines[0].startswith("vpmm trace: "), lines)
        self.assertIn(lines[1:], ([], ["See 'vpmm help trace'."]))
        return lines[0][len("vpmm trace: "):]

    def convert(self, source, name, *words):
        """The path of the file `name`, made from `source`."""
        path = self.folder / name
        self.succeed("convert", source, "-o", path, *words)
        return path


def main():
    unittest.main(argv=["vpmm trace", *rest])
