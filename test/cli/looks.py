# SPDX-License-Identifier: MIT
"""`vpmm dump` and `vpmm stat`: what they show of a running process, and what they say where there is nothing to show."""
import fcntl
import json
import mmap
import os
import re
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import world
from world import Process, vpmm

MIB = 1 << 20
PAGE = 2 * MIB
PAGES = {"VPMM_MIN_SIZE": "page"}  # small requests are CUDA's
# What a look may take, whatever it finds.
LOOK_S = 2


def dump(process, *arguments):
    return json.loads(vpmm("dump", process.pid, "--json", *arguments).stdout)


def is_full(pipe):
    """Whether its writer waits for a reader."""
    waiting = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"0123"))[0]
    return waiting > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - 4096


def may_open_mappings():
    """Whether files can be opened by where they are mapped, as root can where nothing was taken from it."""
    mapping = os.path.join("/proc/self/map_files", os.listdir("/proc/self/map_files")[0])
    try:
        os.close(os.open(mapping, os.O_RDONLY))
    except PermissionError:
        return False
    return True


class Seen(unittest.TestCase):
    def start(self, *commands, **environment):
        process = Process(self, **environment)
        for command in commands:
            process.tell(command)
        return process

    def refused(self, status, words, *arguments):
        """The command ends with that status and one clear line that holds the words."""
        done = vpmm(*arguments, status=status)
        self.assertEqual(done.stdout, "")
        self.assertIn(words, done.stderr.splitlines()[0])
        self.assertEqual(len(done.stderr.splitlines()), 1 if status == 1 else 2, done.stderr)
        self.assertTrue(done.stderr.startswith(f"vpmm {arguments[0]}: "), done.stderr)

    # ---- what is shown ----

    def test_as_the_process_itself(self):
        for form in "text", "json":
            process = self.start("device 0", f"sync {3 * PAGE}", f"async {5 * PAGE - 7}", f"async {2 * PAGE}", "asyncfree 1",
                                 f"sync {4 * PAGE}", "free 0", VPMM_DUMP_FORMAT=form)
            process.tell("raise")
            seen = vpmm("dump", process.pid, *(["--json"] if form == "json" else [])).stdout
            self.assertIn("live" if form == "json" else "[-3]", seen)
            self.assertEqual(process.dumped(), seen)

    def test_what_is_free_and_pending(self):
        process = self.start("device 0", f"async {3 * PAGE}", "spin 0", "asyncfree 0", f"sync {2 * PAGE}")
        figures = process.stat()["devices"][0]
        self.assertEqual(figures["pending_bytes"], 3 * PAGE)
        self.assertEqual(figures["reusable_bytes"], figures["held_bytes"] - 2 * PAGE)
        self.assertEqual(figures["live_bytes"], 2 * PAGE)
        self.assertEqual(figures["live_peak_bytes"], 3 * PAGE)
        self.assertEqual(figures["mallocs"], 2)
        self.assertEqual(process.stat()["program"], "seen")

    def test_the_same_figures_as_at_exit(self):
        process = self.start("device 0", f"async {3 * PAGE}", "asyncfree 0", f"async {3 * PAGE}", f"sync {PAGE}", "sync 100",
                             **PAGES)
        seen = process.stat()
        process.end()
        at_exit = process.statistics()
        self.assertEqual(at_exit["devices"][0].pop("audit"), 0)
        self.assertEqual(seen, at_exit)
        self.assertEqual(seen["requests"]["cudaMalloc"]["small"], 1)

    def test_figures_for_people(self):
        process = self.start("device 0", f"async {3 * PAGE}", "asyncfree 0", f"async {3 * PAGE}", "sync 100", **PAGES)
        text = vpmm("stat", process.pid).stdout
        self.assertIn(f"vpmm[{process.pid}] statistics of seen\ndevice 0\n", text)
        self.assertRegex(text, r"cache \(served from the front cache\) +1  50\.0%\n")
        self.assertRegex(text, r"smaller than the threshold +1  100\.0%\n")

    def test_a_figure_has_one_name(self):
        process = self.start("device 0", f"sync {3 * PAGE}", f"async {2 * PAGE}", "asyncfree 1", VPMM_LIMIT="64M")
        dumped, figures = dump(process)["devices"][0], process.stat()["devices"][0]
        del dumped["regions"]
        self.assertEqual(dumped, {name: figures[name] for name in dumped})
        self.assertLessEqual({"held_bytes", "zombie_bytes", "hole_bytes", "limit_bytes"}, dumped.keys())
        words = [re.findall(r"(?m)^  ([a-z][a-z ]*[a-z])(?: \(.*\))?  +\d+(?:  |$)", vpmm(command, process.pid).stdout)
                 for command in ("dump", "stat")]
        self.assertEqual(len(words[0]), 12)
        self.assertLessEqual(set(words[0]), set(words[1]))

    def test_small_blocks_by_class(self):
        process = self.start("device 0", "sync 100", "async 3000", f"async {PAGE // 2}", f"sync {3 * PAGE}")
        device, = dump(process)["devices"]
        self.assertEqual(sum(one["blocks"] for one in device["small"]), 3)
        self.assertEqual(sum(one["requested_bytes"] for one in device["small"]), 3100 + PAGE // 2)
        self.assertEqual(sum(one["pages"] for one in device["small"]) * PAGE, device["live_bytes"] - 3 * PAGE)
        self.assertEqual(sum(sum(one["pages_by_fill"]) for one in device["small"]), 2)
        self.assertRegex(vpmm("dump", process.pid).stdout, r"\n  fine +2 +3 ")
        self.assertEqual(process.stat()["devices"][0]["small"], device["small"])
        texts = [vpmm(command, process.pid).stdout.splitlines() for command in ("dump", "stat")]
        lines = [[line for line in text if line.startswith(("  small blocks  ", "  fine "))] for text in texts]
        self.assertEqual(lines[0], lines[1])
        self.assertEqual(len(lines[1]), 2)
        process.end()
        self.assertEqual(process.statistics()["devices"][0]["small"], device["small"])

    def test_no_class_without_small_blocks(self):
        for environment in {}, PAGES:
            process = self.start("device 0", f"sync {3 * PAGE}", **environment)
            self.assertNotIn("small", process.stat()["devices"][0])
            self.assertNotIn("small blocks  ", vpmm("stat", process.pid).stdout)

    def test_one_device(self):
        process = self.start("device 0", f"sync {PAGE}", "device 1", f"sync {2 * PAGE}", VPMM_SIM_DEVICES=2)
        self.assertEqual([device["device"] for device in dump(process)["devices"]], [0, 1])
        self.assertEqual([device["live_bytes"] for device in dump(process, "--device", "1")["devices"]], [2 * PAGE])
        self.refused(1, "has no pool on device 7", "dump", process.pid, "--device", "7")

    # ---- whatever the process is doing ----

    def test_stopped(self):
        process = self.start("device 0", f"sync {PAGE}")
        running = vpmm("dump", process.pid).stdout
        process.stop()
        self.assertEqual(vpmm("dump", process.pid).stdout, running)
        self.assertEqual(process.state(), "T")
        os.kill(process.pid, signal.SIGCONT)
        self.assertEqual(process.tell(f"sync {PAGE}"), "block 1")

    def test_waiting_for_the_device(self):
        process = self.start("device 0", f"sync {PAGE}", "block")
        figures = process.stat()["devices"][0]
        self.assertEqual(figures["live_bytes"], PAGE)
        self.assertEqual(figures["pending_bytes"], 2 * PAGE)

    def test_with_a_handler_of_its_own(self):
        process = self.start("handle", "device 0", f"sync {PAGE}")
        self.assertEqual(dump(process)["devices"][0]["live_bytes"], PAGE)
        self.assertEqual(process.tell("raise"), "raised 1")

    def test_allocation_goes_on_while_the_process_dumps(self):
        pipe = os.path.join(tempfile.mkdtemp(dir=world.harness.work), "pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        process = self.start("device 0", "fragment 4000", VPMM_DUMP=pipe, VPMM_EXTENT=1, VPMM_SIM_DATA=0)
        process.write("raisebeside")
        while not is_full(reader):
            self.assertIsNone(process.process.poll())
        self.assertEqual(process.tell("go"), "worked")
        os.set_blocking(reader, True)
        while not os.read(reader, 1 << 20).endswith(b"complete\n"):
            pass
        self.assertEqual(process.answer(), "raised")

    def test_addresses_that_are_taken(self):
        process = self.start("device 0", f"sync {PAGE}", f"async {2 * PAGE}")
        environment = {"LD_PRELOAD": world.taken(), "TAKEN_ADDRESS": process.address()}
        wanted = vpmm("dump", process.pid, "--device", 0).stdout
        for times in 1, 2, 5:
            seen = vpmm("dump", process.pid, "--device", 0, TAKEN_TIMES=times, **environment).stdout
            self.assertEqual(seen, wanted)
        seen = vpmm("top", "--once", process.pid, TAKEN_TIMES=2, **environment).stdout
        self.assertEqual(seen.splitlines()[1:2], vpmm("top", "--once", process.pid).stdout.splitlines()[1:2])
        done = vpmm("stat", process.pid, status=1, TAKEN_TIMES=99, **environment)
        self.assertEqual(done.stderr, f"vpmm stat: the metadata of process {process.pid} cannot be mapped: their "
                                      "addresses are taken\n")

    def test_a_hundred_thousand_regions(self):
        process = self.start("device 0", "fragment 100000", VPMM_SIM_BYTES=1 << 40, VPMM_SIM_DATA=0, VPMM_EXTENT=1)
        device = dump(process)["devices"][0]
        self.assertGreaterEqual(len(device["regions"]), 100000)
        self.assertEqual(sum(region["state"] == "live" for region in device["regions"]), 50000)

    # ---- what cannot be seen ----

    def test_no_process_of_ours(self):
        self.refused(1, f"process {os.getpid()} does not run under VPMM", "dump", os.getpid())

    def test_a_process_that_is_gone(self):
        process = self.start("device 0", f"sync {PAGE}")
        process.end()
        self.refused(1, f"there is no process {process.pid}", "stat", process.pid)

    def test_a_process_that_ended_and_is_not_waited_for(self):
        process = self.start("device 0", f"sync {PAGE}")
        process.kill()
        self.refused(1, f"process {process.pid} has ended", "dump", process.pid)

    @unittest.skipUnless(os.geteuid() == 0, "another user needs root")
    def test_one_of_another_user_that_ended(self):
        process = self.start("device 0", f"sync {PAGE}")
        process.kill()
        self.refused_as(65534, f"process {process.pid} has ended", process)

    def test_one_whose_first_thread_ended(self):
        process = self.start("device 0", f"sync {PAGE}")
        process.write("leave")
        process.tell("handle")
        while process.state() != "Z":
            self.assertIsNone(process.process.poll())
        self.assertEqual(dump(process)["devices"][0]["live_bytes"], PAGE)
        self.assertRegex(vpmm("top", "--once").stdout, rf"(?m)^ *{process.pid} +0 ")

    def test_a_name_that_would_move_the_cursor(self):
        process = self.start("device 0", f"sync {PAGE}", "rename")
        text = vpmm("stat", process.pid).stdout
        self.assertNotIn("\x1b", text)
        self.assertIn("statistics of ?[2Jx\n", text)

    def test_before_the_first_pool(self):
        process = self.start("device 0", **PAGES)
        self.refused(1, "has no pool yet", "dump", process.pid)
        self.refused(1, "has no pool yet", "stat", process.pid)
        process.tell("sync 100")
        self.refused(1, "has no pool yet", "stat", process.pid)

    def test_before_the_first_call(self):
        process = self.start("handle")
        self.refused(1, "has no pool yet, is switched off", "dump", process.pid)

    def test_switched_off(self):
        process = self.start("device 0", f"sync {PAGE}", VPMM_DISABLE=1)
        self.refused(1, "has no pool yet, is switched off", "dump", process.pid)

    def test_a_descriptor_that_was_closed(self):
        process = self.start("device 0", f"sync {PAGE}", "close")
        if may_open_mappings():
            self.assertEqual(dump(process)["devices"][0]["live_bytes"], PAGE)
        else:
            self.refused(1, "has closed the descriptor", "dump", process.pid)
        self.assertEqual(process.tell(f"sync {PAGE}"), "block 1")

    def test_children_are_not_their_parents(self):
        for fork in "fork", "rawfork":
            process = self.start("device 0", f"sync {PAGE}", f"async {3 * PAGE}")
            before = vpmm("dump", process.pid).stdout
            child = int(process.tell(fork).split()[1])
            self.refused(1, f"process {child} ", "dump", child)
            self.assertEqual(vpmm("dump", process.pid).stdout, before, fork)
            self.assertEqual(process.tell(f"async {PAGE}"), "block 2")

    def test_children_of_a_parent_without_a_pool(self):
        process = self.start("device 0")
        child = int(process.tell("fork").split()[1])
        self.refused(1, f"process {child} has no pool yet", "stat", child)
        process.tell(f"sync {PAGE}")
        self.assertEqual(dump(process)["devices"][0]["live_bytes"], PAGE)
        self.refused(1, f"process {child} has no pool yet", "dump", child)

    def test_another_build(self):
        process = self.start("device 0", f"sync {PAGE}", "layout")
        self.refused(1, "runs under another build of VPMM (", "dump", process.pid)

    def test_more_than_can_be_shown(self):
        process = self.start("device 0", f"sync {PAGE}", "spill")
        self.refused(1, "are more than can be shown", "stat", process.pid)

    def test_limits_of_the_process(self):
        for limit in f"filesize {MIB}", "descriptors 3":
            process = self.start(limit, "device 0", f"sync {PAGE}")
            self.assertEqual(process.tell(f"async {PAGE}"), "block 1")
            self.refused(1, "may not share its memory", "dump", process.pid)

    @unittest.skipUnless(os.geteuid() == 0, "another user needs root")
    def test_another_user(self):
        process = self.start("device 0", f"sync {PAGE}")
        self.refused_as(65534, "is not for this user to look at", process)

    def refused_as(self, user, words, process):
        done = vpmm("dump", process.pid, status=1, user=user)
        self.assertEqual(done.stdout, "")
        self.assertIn(words, done.stderr)

    def test_damaged_metadata(self):
        answers = set()
        for seed in range(20):
            process = self.start("device 0", f"sync {3 * PAGE}", f"async {5 * PAGE}", "asyncfree 1", "free 0")
            self.assertNotEqual(process.tell(f"scribble {seed}"), "scribbled 0")
            for what in "dump", "stat":
                done = vpmm(what, process.pid, status=None)
                answers.add(done.returncode)
                self.assertIn(done.returncode, (0, 1))
                if done.returncode:
                    self.assertEqual(done.stdout, "")
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            process.kill()
        self.assertIn(1, answers)

    def test_damage_that_has_no_end(self):
        for number in range(5):
            process = self.start("device 0", f"sync {3 * PAGE}", f"async {5 * PAGE}")
            self.assertEqual(process.tell(f"stretch {number}"), f"stretched {number} of 5")
            began = time.monotonic()
            done = vpmm("dump", process.pid, status=None)
            if done.returncode:
                self.assertEqual((done.stdout, done.stderr),
                                 ("", f"vpmm dump: the metadata of process {process.pid} are damaged, or too many to be read "
                                      "within two seconds\n"))
                self.assertLess(time.monotonic() - began, 2 * LOOK_S)
                self.refused(1, "within two seconds", "stat", process.pid)
                return
        self.fail("no damage made a look endless")

    def test_nobody_else_can_write_to_it(self):
        process = self.start("device 0", f"sync {PAGE}")
        folder = f"/proc/{process.pid}/fd"
        found = [name for name in os.listdir(folder) if os.readlink(os.path.join(folder, name)).startswith("/memfd:vpmm ")]
        self.assertEqual(len(found), 1)
        try:
            file = os.open(os.path.join(folder, found[0]), os.O_RDWR)
        except PermissionError:
            return
        self.addCleanup(os.close, file)
        for attempt in (lambda: os.pwrite(file, b"x", 0), lambda: os.ftruncate(file, 0), lambda: mmap.mmap(file, PAGE)):
            with self.assertRaises(PermissionError):
                attempt()
        self.assertEqual(process.tell(f"sync {PAGE}"), "block 1")

    # ---- where it is shown ----

    def test_without_standard_output(self):
        process = self.start("device 0", f"sync {PAGE}")
        for command in "dump", "stat", "top --once":
            done = subprocess.run(["sh", "-c", f'"$0" {command} $1 >&-', world.command, str(process.pid)],
                                  env=world.clean_environment(), capture_output=True, text=True, check=False,
                                  timeout=world.PATIENCE_S)
            self.assertEqual((done.returncode, done.stderr),
                             (1, "vpmm: standard output cannot be written: Bad file descriptor\n"))

    def test_a_reader_that_leaves(self):
        process = self.start("device 0", "fragment 20000", VPMM_SIM_BYTES=1 << 40, VPMM_SIM_DATA=0, VPMM_EXTENT=1)
        with subprocess.Popen([world.command, "dump", str(process.pid)], env=world.clean_environment(), bufsize=0,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
            self.assertEqual(len(command.stdout.read(10)), 10)
            command.stdout.close()
            self.assertEqual(command.stderr.readall(), b"")
        self.assertEqual(command.returncode, -signal.SIGPIPE)

    # ---- arguments ----

    def test_arguments(self):
        self.refused(2, "it takes the PID of a process", "dump")
        self.refused(2, "it takes one process, not 2", "stat", "1", "2")
        self.refused(2, "'-x' is no process", "dump", "--", "-x")
        self.refused(2, "'0' is no process", "stat", "0")
        self.refused(2, "'4294967296' is no process", "stat", "4294967296")
        self.refused(2, "--device '64' is not accepted: it takes a number from 0 to 63", "dump", "1", "--device=64")
        self.refused(2, "--device needs a value", "dump", "1", "--device")
        self.refused(2, "there is no option --loud", "stat", "--loud", "1")
        self.refused(2, "there is no option --again=0", "stat", "--again=0", "1")
        self.refused(2, "--json takes no value", "dump", "1", "--json=yes")
        self.refused(2, "there is no option -x", "stat", "--json", "-xyz", "1")
        self.refused(2, "there is no option -z", "dump", "1", "-z")
        self.refused(2, "'1?[2J' is no process", "dump", "1\x1b[2J")
        self.refused(2, "are not for you", "top", "--glance=1")

    def test_help(self):
        for name in "dump", "stat":
            self.assertTrue(vpmm("help", name).stdout.startswith(f"usage: vpmm {name} PID"))


if __name__ == "__main__":
    world.main()
