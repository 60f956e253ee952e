# SPDX-License-Identifier: MIT
"""Ordinary programs, bare and preloaded, under every condition that the machine can make: the exit status and what is
printed on standard output must be the same, whatever the library was asked to write and wherever that goes."""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "preload"))
import conditions
import harness

HERE = os.path.dirname(os.path.abspath(__file__))
# What no wait of ours may reach: a program of this suite takes a second.
PATIENCE_S = 60
# The least that a run of this suite must have compared: conditions and programs, whatever the modes.
LEAST = 100

MODES = {
    "default": {},
    "statistics": {"VPMM_STATS": "1"},
    "dump on standard error": {"VPMM_DUMP_FORMAT": "json"},
    "dump into a pipe without a reader": {"VPMM_DUMP": "{folder}/pipe"},
    "messages": {"VPMM_LIMIT": "1", "VPMM_TYPO": "1"},
    # All files that the library writes.
    "everything": {"VPMM_STATS": "{folder}/tables.txt", "VPMM_DUMP": "{folder}/dump", "VPMM_TRACE": "{folder}/trace",
                   "VPMM_IDLE_MS": "5", "VPMM_LOG": "debug", "VPMM_TYPO": "1"},
}


def worker():
    return harness.compile("worker", os.path.join(HERE, "programs", "worker.c"), "-isystem", harness.options.cuda_headers,
                           os.path.join(harness.options.sim, "libcuda.so.1"), "-ldl", "-lpthread")


class Everywhere(unittest.TestCase):
    n_compared = n_skipped = 0
    pairs = set()

    @classmethod
    def setUpClass(cls):
        worker()
        os.chmod(harness.work, 0o755)

    def folder(self):
        """A new folder for reports, in which everybody may write."""
        folder = tempfile.mkdtemp(dir=harness.work)
        os.chmod(folder, 0o777)
        os.mkfifo(os.path.join(folder, "pipe"), 0o666)
        os.chmod(os.path.join(folder, "pipe"), 0o666)
        return folder

    def start(self, name, command, environment, preload):
        """(exit status, standard output) of the program under the condition."""
        folder = self.folder()
        way = conditions.all_of(folder)[name]()
        env = {key: value for key, value in os.environ.items() if not key.startswith(("VPMM_", "LD_"))}
        env["LD_LIBRARY_PATH"] = harness.options.sim
        words = [f"LD_PRELOAD={harness.options.shared_library}"] if preload else []
        words += [f"{key}={value.format(folder=folder)}" for key, value in environment.items()]
        argument = [way.argument] if isinstance(way.argument, str) and "/" not in way.argument and way.argument else []
        if name.endswith("stderr closed"):
            argument = ["file"]
        try:
            done = subprocess.run([*way.before, shutil.which("env"), *words, *command, *argument], env=env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=way.stderr, cwd="/", text=True,
                                  timeout=PATIENCE_S, preexec_fn=way.enter, check=False)
        finally:
            if isinstance(way.stderr, int) and way.stderr >= 0:
                os.close(way.stderr)
            if isinstance(way.argument, int):
                os.close(way.argument)
            elif way.argument.startswith("/sys"):
                with contextlib.suppress(OSError):
                    os.rmdir(way.argument)
        return done.returncode, done.stdout

    def compare(self, name, command, modes):
        try:
            bare = self.start(name, command, {}, False)
            if bare[0] != 0 or not bare[1]:
                raise conditions.CannotMake(f"the bare program ends with {bare[0]} there")
        except conditions.CannotMake as reason:
            Everywhere.n_skipped += len(modes)
            print(f"SKIPPED {len(modes)} runs of {os.path.basename(command[0])}: {name}: {reason}", file=sys.stderr)
            return
        for mode in modes:
            with self.subTest(condition=name, mode=mode, program=os.path.basename(command[0])):
                self.assertEqual(self.start(name, command, MODES[mode], True), bare)
                Everywhere.n_compared += 1
                Everywhere.pairs.add((name, command[0]))

    def test_a_program_that_raises_the_signal_and_cancels_threads(self):
        for name in conditions.all_of(harness.work):
            self.compare(name, [worker()], MODES)

    def test_programs_of_the_truth(self):
        for truth in harness.options.truths:
            for name in conditions.all_of(harness.work):
                self.compare(name, [truth], ("everything",))

    def test_no_program_without_cuda_notices(self):
        for name in ("stderr closed", "stderr a broken pipe", "RLIMIT_FSIZE 0", "nothing special"):
            self.compare(name, [shutil.which("echo"), "hello"], ("everything",))

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.n_compared} pairs of runs compared, of {len(cls.pairs)} pairs of a condition and a program; "
              f"{cls.n_skipped} skipped", file=sys.stderr)
        assert len(cls.pairs) >= LEAST, "too few conditions could be made to prove anything"


def main():
    truths = []
    while "--truth" in sys.argv:
        at = sys.argv.index("--truth")
        truths.append(os.path.abspath(sys.argv[at + 1]))
        del sys.argv[at:at + 2]
    rest = harness.parse()
    harness.options.truths, harness.options.sim = truths, os.path.abspath(harness.options.sim)
    unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
