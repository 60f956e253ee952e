# SPDX-License-Identifier: MIT
"""`vpmm top`: its plain text, and its screen on a terminal of the test's own."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import world
from world import Process, vpmm

PAGE = 2 << 20
ENTER, LEAVE = "\033[?1049h", "\033[?1049l"
ESCAPE = re.compile(r"\033\[[0-9;?]*[a-zA-Z]")
HEADINGS = 4
MARK = "what comes behind this was written behind it"


def without_escapes(text):
    return ESCAPE.sub("", text)


class Terminal:
    """The command on a terminal; what it wrote so far is in `output`."""

    def __init__(self, test, *arguments, columns=120, lines=30, **environment):
        self.master, slave = pty.openpty()
        self.size(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.output = ""
        self.process = subprocess.Popen([world.command, "top", *map(str, arguments)], stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True,
                                        env=world.clean_environment(**{"TERM": "xterm", "NO_COLOR": "", **environment}))
        test.addCleanup(self.close)

    def size(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        """More of it; False at the end."""
        if not select.select([self.master], [], [], world.PATIENCE_S)[0]:
            raise AssertionError(f"nothing more after {self.output!r}")
        try:
            more = os.read(self.master, 65536)
        except OSError:
            return False
        self.output += more.decode()
        return bool(more)

    def until(self, wanted):
        """Reads until that pattern, which is looked for from here on, has come."""
        begin = len(self.output)
        while not re.search(wanted, self.output[begin:]):
            assert self.read(), self.output
        return self.output[begin:]

    def painted(self):
        """One whole screen that was begun from here on: neither one that was written before and not read, nor the one
        that may be under way, which is the first behind the mark."""
        os.write(self.slave, MARK.encode())
        self.until(MARK)
        begin = len(self.output)
        while self.output.count("\033[H", begin) < 3:
            self.write(" ")
            self.until(r"\033\[H")
        return self.output[begin:].split("\033[H")[2]

    def write(self, keys):
        os.write(self.master, keys.encode())

    def settings(self):
        return termios.tcgetattr(self.slave)

    def wait(self):
        status = self.process.wait(timeout=world.PATIENCE_S)
        while select.select([self.master], [], [], 0)[0] and self.read():
            pass
        return status

    def state(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class Plain(unittest.TestCase):
    def test_one_look(self):
        process = Process(self, VPMM_SIM_DEVICES=2, VPMM_MIN_SIZE="page")
        for line in ("device 0", f"sync {6 * PAGE}", f"async {2 * PAGE}", "free 0", "sync 100", "device 1", f"sync {PAGE}"):
            process.tell(line)
        done = vpmm("top", "--once", process.pid)
        lines = done.stdout.splitlines()
        self.assertEqual(done.stderr, "")
        self.assertNotIn("\033", done.stdout)
        self.assertRegex(lines[0], r"^vpmm top - \d\d:\d\d:\d\d, 1 process$")
        self.assertEqual(lines[1], "live 6.00M, held 18.0M, reusable 12.0M, pending 0")
        self.assertEqual(lines[3].split()[:5], ["PID", "DEV", "LIVE", "HELD", "REUSE"])
        self.assertEqual(lines[4].split()[:6], [str(process.pid), "0", "4.00M", "16.0M", "12.0M", "0"])
        self.assertEqual(lines[4].split()[-1], "seen")
        self.assertRegex(lines[5], r"^ {8}\[-{80,}#{26,}\]$")
        self.assertEqual(lines[6].split()[:3], [str(process.pid), "1", "2.00M"])
        self.assertRegex(lines[7], r"^ {8}\[#{100,}\]$")
        self.assertEqual(lines[8:], ["         left to CUDA: small 1"])
        self.assertLessEqual(max(map(len, lines)), 120)

    def test_small_blocks(self):
        process = Process(self)
        for line in ("device 0", f"sync {3 * PAGE}"):
            process.tell(line)
        self.assertNotIn("small blocks", vpmm("top", "--once", process.pid).stdout)
        for size in 512, 1024:
            process.tell(f"async {size}")
        lines = vpmm("top", "--once", process.pid).stdout.splitlines()
        # Their pages lie behind the addresses of the others, which are hardly used.
        self.assertRegex(lines[5], r"^ {8}\[#{100,}\]$")
        self.assertEqual(lines[6:], ["         small blocks:  fine 2 (1.50K in 2.00M)"])

    def test_all_of_this_user(self):
        processes = [Process(self) for _ in range(3)]
        for process in processes[:2]:
            process.tell("device 0")
            process.tell(f"sync {PAGE}")
        processes[2].tell("device 0")
        text = vpmm("top", "--once").stdout
        for process in processes[:2]:
            self.assertRegex(text, rf"(?m)^ *{process.pid} +0 ")
        self.assertNotRegex(text, rf"(?m)^ *{processes[2].pid} +\d")

    def test_rates_are_of_the_last_look(self):
        process = Process(self)
        process.tell("device 0")
        for i in range(4):
            process.tell(f"async {PAGE}")
            process.tell(f"asyncfree {i}")
        with subprocess.Popen([world.command, "top", "--batch", "--interval", "0.1", str(process.pid)], text=True,
                              stdout=subprocess.PIPE, env=world.clean_environment()) as top:
            rows = []
            while len(rows) < 2:
                line = top.stdout.readline()
                if line.split()[:1] == [str(process.pid)]:
                    rows.append(line.split())
            process.end()
            rest = top.stdout.read()
            self.assertEqual(top.wait(timeout=world.PATIENCE_S), 0)
        at = len("PID DEV LIVE HELD REUSE PEND ZOMB HOLES REQ/s".split())
        self.assertEqual(rows[0][at], "75%")
        self.assertEqual(rows[1][at - 1:at + 1], ["0", "-"])
        self.assertIn("ended, or not to be seen any more  seen\n", rest)

    def test_what_cannot_be_shown(self):
        process = Process(self)
        process.tell("device 0")
        for pid, words in (os.getpid(), "does not run under VPMM"), (process.pid, "has no pool yet"):
            done = vpmm("top", "--once", pid, status=1)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr, f"vpmm top: process {pid} {words}\n")

    def test_arguments(self):
        for words, arguments in (
                ("'x' is no process: it takes PIDs", ["x"]),
                ("--interval '0' is not accepted: it takes 0.1 to 3600 seconds", ["--interval", "0"]),
                ("--interval 'nan' is not accepted: it takes 0.1 to 3600 seconds", ["--interval", "nan"]),
                ("--interval needs a value", ["--interval"]),
                ("there is no option --twice", ["--twice"])):
            done = vpmm("top", *arguments, status=2)
            self.assertEqual(done.stderr, f"vpmm top: {words}\nSee 'vpmm help top'.\n")
        self.assertTrue(vpmm("help", "top").stdout.startswith("usage: vpmm top [PID...]"))


class Screen(unittest.TestCase):
    def start(self, *arguments, **more):
        self.process = Process(self, **more.pop("environment", {}))
        self.process.tell("device 0")
        self.process.tell(f"sync {PAGE}")
        until = more.pop("until", r"\033\[H(?s:.)*seen(?s:.)*\033\[K")
        terminal = Terminal(self, *(arguments or [self.process.pid]), **more.pop("more", {}), **more)
        terminal.until(until)
        return terminal

    def restored(self, terminal):
        self.assertEqual(terminal.settings(), terminal.before)
        self.assertGreater(terminal.output.rfind(LEAVE), terminal.output.rfind(ENTER))
        self.assertGreater(terminal.output.rfind("\033[?25h"), terminal.output.rfind("\033[?25l"))

    def test_quits(self):
        terminal = self.start()
        self.assertNotEqual(terminal.settings(), terminal.before)
        terminal.write("q")
        self.assertEqual(terminal.wait(), 0)
        self.restored(terminal)

    def test_keys_that_come_at_once_all_count(self):
        terminal = self.start()
        terminal.write("\033[B\033[5~\033[1;5C+ j\033OAq")
        self.assertEqual(terminal.wait(), 0)
        self.restored(terminal)

    def test_without_colours(self):
        coloured = re.compile(r"\033\[0;3\d")
        self.assertRegex(self.start().output, coloured)
        terminal = self.start(more={"NO_COLOR": "1"})
        self.assertNotRegex(terminal.painted(), coloured)
        self.assertIn("\033[0;7m", terminal.output)

    def test_a_terminal_that_can_do_nothing(self):
        terminal = self.start("--interval", 0.1, more={"TERM": "dumb"}, until=r"seen\s(?s:.)*seen\s")
        self.assertNotIn("\033", terminal.output)
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.wait(), -signal.SIGINT)

    def test_what_changes_is_shown(self):
        terminal = self.start("--interval", 0.1)
        self.process.tell(f"sync {9 * PAGE}")
        terminal.until(rf"{self.process.pid}\S* +0 +20\.0M ")

    def test_signals(self):
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            terminal = self.start()
            terminal.process.send_signal(number)
            self.assertEqual(terminal.wait(), -number)
            self.restored(terminal)

    def test_stops_and_goes_on(self):
        terminal = self.start()
        terminal.process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        while LEAVE not in terminal.output:
            terminal.read()
        self.restored(terminal)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(re.escape(ENTER) + r"(?s:.)*seen")
        self.assertNotEqual(terminal.settings(), terminal.before)
        terminal.write("q")
        self.assertEqual(terminal.wait(), 0)

    def test_fits_whatever_the_size(self):
        terminal = self.start()
        for columns, lines in (60, 8), (200, 50), (20, 5), (1, 1), (119, 24):
            terminal.size(columns, lines)
            terminal.process.send_signal(signal.SIGWINCH)
            frame = terminal.painted()
            rows = [row.strip("\r") for row in without_escapes(frame).split("\n")]
            self.assertLessEqual(len(rows), lines, frame)
            self.assertLessEqual(max(map(len, rows)), columns, frame)

    def test_scrolls(self):
        terminal = self.start(lines=HEADINGS + 1)
        terminal.write("j")
        frame = terminal.until(r"\033\[H(?s:.)*\[\S*#+\S*\]")
        self.assertNotIn(str(self.process.pid), frame.rpartition("\033[H")[2])
        terminal.write("k")
        terminal.until(rf"\033\[H(?s:.)*{self.process.pid}")

    def test_nobody_has_a_pool(self):
        terminal = Terminal(self)
        if "no process of yours has a pool" not in terminal.output:
            terminal.until(r"vpmm top(?s:.)*\033\[K")
        terminal.write("q")
        self.assertEqual(terminal.wait(), 0)


if __name__ == "__main__":
    world.main()
