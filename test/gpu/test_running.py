# SPDX-License-Identifier: MIT
"""Tests of how one program is run: its output, its marks, its end and its limit."""
import os
import selectors
import signal
import sys
import time
import unittest
from pathlib import Path

import process
from process import run
from test_runner import InFolder, replaced

# Nothing below comes near it: what waits, waits for ever.
LIMIT_S = 600.0


class LateClock:
    """In place of the module `time` of those who look for the end of a limit: it is over once is_late."""

    is_late = False

    def monotonic(self):
        return time.monotonic() + 2 * LIMIT_S * self.is_late


class Running(InFolder):
    def python(self, text, limit_s=LIMIT_S, look=None):
        return run([sys.executable, "-c", text], os.environ, limit_s, self.folder, look)

    def test_keeps_output_errors_and_code(self):
        outcome = self.python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
        self.assertEqual((outcome.code, outcome.output, outcome.errors), (3, "out\n", "err\n"))
        self.assertFalse(outcome.hung)
        self.assertEqual((self.folder / "stdout").read_text(), "out\n")

    def test_a_signal_is_a_negative_code(self):
        self.assertEqual(self.python("import os; os.abort()").code, -signal.SIGABRT)

    def test_a_program_that_cannot_be_started_is_trouble(self):
        outcome = run(["/no/such/program"], os.environ, 5.0, self.folder)
        self.assertIn("cannot be started", outcome.trouble)
        self.assertFalse(outcome.hung)

    def test_a_hang_ends_the_whole_group(self):
        clock = LateClock()

        def look(_mark, _pid, _before):
            clock.is_late = True
            return {}

        child = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
        with replaced(process, "time", clock):
            outcome = self.python(
                f"import signal, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=-1)\n"
                "print('before', child.stdout.readline().decode().strip(), flush=True)\n"
                "print('@child', flush=True)\nsignal.pause()", look=look)
        self.assertTrue(outcome.hung)
        self.assertRegex(outcome.output, r"\Abefore \d+\n@child\n\Z")
        self.assertTrue(is_gone(int(outcome.output.split()[1])))

    def test_a_child_left_behind_does_not_hold_the_run(self):
        outcome = self.python("import subprocess, sys\n"
                              "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\nprint('done')")
        self.assertEqual((outcome.code, outcome.output), (0, "done\n"))
        self.assertLess(outcome.seconds, LIMIT_S)

    def test_last_words_between_two_looks_are_read(self):
        """It looks and finds nothing, the program speaks and ends, and it looks whether the program has ended."""
        go = self.folder / "go"

        class Busy(selectors.DefaultSelector):
            def select(self, timeout=None):
                if go.exists():
                    return super().select(timeout)
                go.touch()
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                return []

        with replaced(process.selectors, "DefaultSelector", Busy):
            outcome = self.python("import os\nwhile not os.path.exists('go'): pass\nprint('last words')")
        self.assertEqual((outcome.code, outcome.output), (0, "last words\n"))

    def test_a_mark_is_looked_at_before_it_is_answered(self):
        seen = []

        def look(mark, pid, before):
            seen.append((mark, pid, before, (self.folder / "after").exists()))
            return {mark: float(before)}

        outcome = self.python("import os\nprint(os.getpid())\nfor m in 'one', 'two':\n"
                              "    print('@' + m, flush=True)\n    input()\nopen('after', 'w').close()", look=look)
        pid = int(outcome.output.splitlines()[0])
        self.assertEqual(seen, [("one", pid, 0, False), ("two", pid, 1, False)])
        self.assertEqual(outcome.figures, {"one": 0.0, "two": 1.0})
        self.assertEqual(outcome.code, 0)

    def test_a_look_that_fails_is_trouble_and_the_program_goes_on(self):
        def look(mark, pid, before):
            raise ValueError("nothing there")

        outcome = self.python("print('@one', flush=True)\ninput()\nprint('end')", look=look)
        self.assertEqual(outcome.trouble, "at one: nothing there")
        self.assertEqual(outcome.code, 0)


def is_gone(pid):
    """An ended process may stay as a zombie of whoever adopted it."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


if __name__ == "__main__":
    unittest.main()
