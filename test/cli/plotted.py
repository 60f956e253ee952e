# SPDX-License-Identifier: MIT
"""What the tests of `vpmm plot` share: a trace whose figures are known, and how the command is run."""
import argparse
import contextlib
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

import native_trace as native

MIB = 1 << 20
BASE = 0x7F0000000000
OF_CUDA = 0x302000000
LIVE_PEAK, HELD_PEAK = 112 * MIB, 128 * MIB
arguments = argparse.Namespace()


def threads():
    """Two threads on one device. Live at most 112 MiB, from 4 ms on; held at most 128 MiB; 64 MiB are moved at 4 ms and
    their old addresses unmapped at 5 ms; 48 MiB are CUDA's from 7 to 8 ms; one request is refused."""
    entry = native.entry
    one = [
        entry(native.GROW, 1000, BASE, 64 * MIB),
        entry(native.MALLOC, 1000, BASE, 64 * MIB, 1, native.BY_GROW),
        entry(native.GROW, 2500, BASE + 96 * MIB, 16 * MIB),
        entry(native.FREE, 3000, BASE, 64 * MIB, 1, native.POOL),
        entry(native.FIGURES, 3500, 112 * MIB, 32 * MIB, 64 * MIB),
        entry(native.STITCH, 4000, BASE + 128 * MIB, 64 * MIB),
        entry(native.GROW, 4000, BASE + 192 * MIB, 16 * MIB),
        entry(native.MALLOC, 4000, BASE + 128 * MIB, 80 * MIB, 1, native.BY_STITCH),
        entry(native.UNMAP, 5000, BASE, 64 * MIB),
        entry(native.FREE, 6000, BASE + 128 * MIB, 80 * MIB, 1, native.POOL),
        entry(native.MALLOC, 6500, 0, 1 << 63, 1, native.CUDA, flags=native.IS_FAILED),
        entry(native.MALLOC, 7000, OF_CUDA, 48 * MIB, 0, native.CUDA + 1),
        entry(native.FREE, 8000, OF_CUDA, 0, 0, native.CUDA, device=255),
        entry(native.UNMAP, 8500, BASE + 128 * MIB, 80 * MIB),
        entry(native.RELEASE, 8500, BASE + 128 * MIB, 80 * MIB),
        entry(native.FIGURES, 9000, 48 * MIB, 32 * MIB, 0),
    ]
    two = [
        entry(native.GROW, 2000, BASE + 64 * MIB, 32 * MIB),
        entry(native.MALLOC, 2000, BASE + 64 * MIB, 32 * MIB, 2, native.BY_GROW),
        entry(native.FREE, 10000, BASE + 64 * MIB, 32 * MIB, 2, native.POOL),
    ]
    return one, two


class Case(unittest.TestCase):
    """With a folder of its own, and the trace above in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vpmm-test-plot-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.trace = native.write(self.folder / "small.vpmm", *threads(), program=b"small")

    def run_plot(self, *words, **how):
        return subprocess.run([str(how.pop("program", arguments.program)), "plot", *map(str, words)], text=True,
                              capture_output=True, check=False, timeout=120, **how)

    def started(self, name, *words, **how):
        """The picture's path, drawn by the command."""
        out = self.folder / name
        result = self.run_plot(*words, "-o", out, **how)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        return out

    def plot(self, name, *words):
        """The same in this process, which is what the command starts and many times as fast."""
        out, said = self.folder / name, io.StringIO()
        with contextlib.redirect_stderr(said):
            status = arguments.part.main([str(arguments.program), *map(str, words), "-o", str(out)])
        self.assertEqual((status, said.getvalue()), (0, ""))
        return out

    def assert_refused(self, result, status, *words):
        """By one line, and one more where an argument was wrong."""
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        lines = result.stderr.splitlines()
        self.assertRegex(lines[0], r"\Avpmm plot: ")
        self.assertLessEqual(lines[1:], ["See 'vpmm help plot'."])
        for word in words:
            self.assertIn(word, lines[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.parse_args(namespace=arguments)
    part = arguments.root / "src/tools/python/vpmm_plot"
    sys.path.insert(0, str(part))
    found = importlib.util.spec_from_file_location("vpmm_plot", part / "__main__.py")
    arguments.part = importlib.util.module_from_spec(found)
    found.loader.exec_module(arguments.part)
    unittest.main(argv=sys.argv[:1])
