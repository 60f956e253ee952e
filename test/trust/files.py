# SPDX-License-Identifier: MIT
"""What the library writes to and what it leaves alone: no file of the user is damaged, no pipe holds a program up, a file of
dumps has a bound, and a trace that somebody cuts ends nobody."""
import contextlib
import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "preload"))
import harness
import reports
import trace_file

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = "print('a program of the user')\n"
NOBODY = 65534


def program(name):
    return harness.compile(name, os.path.join(HERE, "programs", name + ".c"), "-isystem", harness.options.cuda_headers,
                           os.path.join(harness.options.sim, "libcuda.so.1"), "-ldl", "-lpthread")


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=harness.work)

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def read(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def run_worker(self, *arguments, **environment):
        run = harness.run_simulated(program("worker"), *arguments, **{"VPMM_STATS": "0", **environment})
        self.assertEqual((run.status, run.output.splitlines()[-1:]), (0, ["done"]), run.output + run.errors)
        return run

    @contextlib.contextmanager
    def limited_files(self, most_bytes):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    # ---- what is not ours to write to ----

    def options(self):
        """The options that name a file, each with something that it would write."""
        return ("VPMM_TRACE", "t"), ("VPMM_DUMP", "d"), ("VPMM_STATS", "s.json"), ("VPMM_STATS", "s.txt")

    def test_a_file_with_something_else_in_it_stays(self):
        for option, name in self.options():
            path = self.path(name, SOURCE)
            run = self.run_worker(**{option: path})
            self.assertEqual(self.read(name), SOURCE, option)
            if option != "VPMM_DUMP":
                self.assertIn(f"{path}", run.errors)
                self.assertRegex(run.errors, "holds something")
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(name for _, name in self.options()))

    def test_links_are_not_followed(self):
        for option, name in self.options():
            for target in "there", "not-there":
                with self.subTest(option=option, name=name, target=target):
                    link = self.path(f"{target}-{name}")
                    self.path("there", "")
                    os.symlink(target, link)
                    run = self.run_worker(**{option: link})
                    self.assertTrue(os.path.islink(link))
                    self.assertEqual(self.read("there"), "")
                    self.assertFalse(os.path.exists(self.path("not-there")))
                    if option != "VPMM_DUMP":
                        self.assertIn("symbolic link", run.errors)

    def test_through_a_link_to_a_folder(self):
        os.mkdir(self.path("real"))
        os.symlink("real", self.path("link"))
        for option, name in self.options():
            self.run_worker(**{option: self.path(f"link/{name}")})
        self.assertEqual(sorted(os.listdir(self.path("real"))), sorted(name for _, name in self.options()))

    @unittest.skipUnless(os.geteuid() == 0, "files of others need root")
    def test_files_of_others_stay(self):
        for option, name in self.options():
            path = self.path(name, "")
            os.chown(path, NOBODY, NOBODY)
            self.run_worker(**{option: path})
            self.assertEqual(os.stat(path).st_size, 0, option)

    def test_folders_and_sockets(self):
        os.mkdir(self.path("folder"))
        for option, _ in self.options():
            self.run_worker(**{option: self.path("folder")})
        self.assertEqual(os.listdir(self.path("folder")), [])

    # ---- traces ----

    def test_an_empty_file_and_a_trace_are_replaced(self):
        path = self.path("t", "")
        for _ in range(2):
            self.run_worker(VPMM_TRACE=path)
            self.assertGreater(len(trace_file.Trace(path).of("malloc")), 100)

    def test_a_trace_that_another_program_cuts(self):
        path = self.path("t")
        run = self.run_worker("cut", path, VPMM_TRACE=path)
        self.assertIn(f"another program has cut the trace {path}", run.errors)
        self.assertLess(os.stat(path).st_size, 4096)

    # ---- statistics ----

    def test_statistics_are_one_document_after_any_number_of_runs(self):
        path = self.path("s.json")
        seen = set()
        for _ in range(3):
            self.run_worker(VPMM_STATS=path)
            seen.add(json.loads(self.read("s.json"))["pid"])
        self.assertEqual(len(seen), 3)
        self.assertEqual(os.listdir(self.folder), ["s.json"])

    def test_what_a_killed_process_left_is_in_nobodys_way(self):
        path = self.path("s.json")
        leave = f'printf \'{{"vpmm_stats": 1\' >{path}.$$.new; LD_PRELOAD={harness.options.shared_library} exec {program("worker")}'
        run = harness.Run(["sh", "-c", leave], preload=[], library_path=[harness.options.sim], VPMM_STATS=path)
        self.assertEqual(run.status, 0)
        self.assertNotIn("cannot be written", run.errors)
        self.assertGreater(json.loads(self.read("s.json"))["pid"], 1)
        self.assertEqual(os.listdir(self.folder), ["s.json"])

    def test_a_file_of_several_documents_becomes_one(self):
        path = self.path("s.json", '{"vpmm_stats": 1, "pid": 1}\n{"vpmm_stats": 1, "pid": 2}\n')
        self.run_worker(VPMM_STATS=path)
        self.assertGreater(json.loads(self.read("s.json"))["pid"], 2)

    def test_tables_are_added(self):
        path = self.path("s.txt")
        for n in 1, 2:
            self.run_worker(VPMM_STATS=path)
            self.assertEqual(self.read("s.txt").count("statistics of worker"), n)

    def test_a_table_does_not_mix_with_another_processs(self):
        path = self.path("s.txt", "vpmm[1] statistics of")
        with open(path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            run = self.run_worker(VPMM_STATS=path)
        self.assertEqual(self.read("s.txt"), "vpmm[1] statistics of")
        self.assertIn("another process has locked it; the statistics are here:", run.errors)
        self.assertIn("statistics of worker", run.errors)

    def test_a_full_disk_leaves_whole_tables(self):
        path = self.path("s.txt")
        self.run_worker(VPMM_STATS=path)
        before = self.read("s.txt")
        with self.limited_files(len(before) + len(before) // 2):
            run = self.run_worker(VPMM_STATS=path)
        self.assertEqual(self.read("s.txt"), before)
        self.assertIn("not all of it could be written; the statistics are here:", run.errors)
        self.assertIn("statistics of worker", run.errors)

    def test_standard_output_and_error_by_their_names(self):
        run = self.run_worker(VPMM_STATS="/dev/stderr", VPMM_DUMP="/dev/stderr")
        self.assertIn("statistics of worker", run.errors)
        self.assertIn("vpmm device 0: ", run.errors)
        run = harness.run_simulated(program("worker"), VPMM_STATS="/dev/stdout")
        self.assertIn("statistics of worker", run.output)

    # ---- dumps ----

    def test_dumps_are_added_up_to_a_bound(self):
        path = self.path("d")
        self.run_worker(VPMM_DUMP=path, VPMM_DUMP_FORMAT="json")
        whole = len(list(reports.dumps(self.read("d"))))
        once = os.stat(path).st_size
        self.assertGreater(whole, 3)
        run = self.run_worker(VPMM_DUMP=path, VPMM_DUMP_FORMAT="json", VPMM_DUMP_MAX=once + once // 2)
        self.assertLessEqual(os.stat(path).st_size, once + once // 2)
        self.assertGreater(os.stat(path).st_size, once)
        self.assertIn(len(list(reports.dumps(self.read("d")))), range(whole + 1, 2 * whole))
        self.assertEqual(run.errors.count("VPMM_DUMP_MAX"), 1)
        self.assertIn(path, run.errors)
        before = self.read("d")
        run = self.run_worker(VPMM_DUMP=path, VPMM_DUMP_MAX=1, VPMM_LOG="none")
        self.assertEqual((self.read("d"), run.errors), (before, ""))

    def test_a_full_disk_leaves_whole_dumps(self):
        path = self.path("d")
        self.run_worker(VPMM_DUMP=path, VPMM_DUMP_FORMAT="json")
        whole = len(list(reports.dumps(self.read("d"))))
        once = os.stat(path).st_size
        with self.limited_files(once + once // 2):
            self.run_worker(VPMM_DUMP=path, VPMM_DUMP_FORMAT="json")
        self.assertIn(len(list(reports.dumps(self.read("d")))), range(whole + 1, 2 * whole))

    def test_a_dump_does_not_mix_with_another_processs(self):
        path = self.path("d", "vpmm device ")
        with open(path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            run = self.run_worker(VPMM_DUMP=path)
        self.assertEqual(self.read("d"), "vpmm device ")
        self.assertIn("vpmm device 0: ", run.errors)

    def test_a_pipe_without_a_reader_holds_nobody_up(self):
        path = self.path("pipe")
        os.mkfifo(path)
        began = time.monotonic()
        run = self.run_worker(VPMM_DUMP=path)
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn("vpmm device 0: ", run.errors)
        self.assertTrue(stat.S_ISFIFO(os.stat(path).st_mode))

    def test_a_reader_that_does_not_read_holds_nobody_up_for_long(self):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        env = {"LD_LIBRARY_PATH": harness.options.sim, "LD_PRELOAD": harness.options.shared_library, "VPMM_STATS": "1",
               "VPMM_DUMP": "/dev/null", "VPMM_TYPO": "1"}
        done = subprocess.run([program("worker")], env=env, stderr=writer, stdout=subprocess.PIPE, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"))

    # ---- the signal ----

    def test_the_signal_before_the_first_pool(self):
        run = self.run_worker(VPMM_DUMP=self.path("d"))
        self.assertEqual(run.errors, "")
        self.assertTrue(self.read("d").startswith("vpmm: no device has a pool yet\n"))
        run = harness.run_simulated(program("lookup"), VPMM_DUMP=self.path("looked-up"))
        self.assertEqual((run.status, run.output), (0, "loaded default\nlook-up 0\nlooked up answered\n"))
        self.assertEqual(self.read("looked-up"), "vpmm: no device has a pool yet\n")

    def test_the_signal_after_the_library_was_closed(self):
        run = harness.run_simulated(program("closing"), harness.options.shared_library, preload=[],
                                    VPMM_DUMP=self.path("d"))
        self.assertEqual((run.status, run.output), (0, "allocated 0\nclosed 0\nanswered 1\ndone\n"))
        self.assertIn("vpmm device 0: ", self.read("d"))

    # ---- limits ----

    def limited(self, most_kib, preload):
        return harness.Run(["sh", "-c", f'ulimit -v {most_kib}; exec env LD_PRELOAD="$1" "$0"', program("worker"), preload],
                           preload=[], library_path=[harness.options.sim], VPMM_DUMP="/dev/null")

    def test_a_limit_of_the_address_space_is_found_out_once(self):
        """What little there is stays the program's: here even the end of a cancelled thread needs some."""
        for most_kib in (*range(440_000, 800_000, 40_000), 1 << 20, 3 << 19, 1 << 21):
            with self.subTest(most_kib=most_kib):
                bare, run = self.limited(most_kib, ""), self.limited(most_kib, harness.options.shared_library)
                self.assertEqual((run.status, run.output), (bare.status, bare.output))
                self.assertLessEqual(run.errors.count("no pool for device"), 1)

    # ---- SIGBUS ----

    def test_the_programs_own_handler_of_a_bus_error(self):
        """Before and after the library has come; and without one the program ends as it would."""
        path = self.path("t")
        for scene, status, output in (("own", 0, "own handler\n"), ("later", 0, "own handler\n"), ("none", -7, ""),
                                      ("sent", -7, ""), ("child", 0, "child -7\n")):
            with self.subTest(scene=scene):
                bare = harness.run_simulated(program("bus"), scene, preload=[])
                self.assertEqual((bare.status, bare.output), (status, output))
                run = harness.run_simulated(program("bus"), scene, VPMM_TRACE=path)
                self.assertEqual((run.status, run.output), (status, output), run.errors)
                self.assertGreater(len(trace_file.Trace(path).of("malloc")), 0)


if __name__ == "__main__":
    harness.main()
