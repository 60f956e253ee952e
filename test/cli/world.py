# SPDX-License-Identifier: MIT
"""What the tests of the command share: the command itself, and preloaded processes that are told what to do."""
import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "preload"))
import harness

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 120

command = None


def main():
    """As harness.main, with the command's path as one more option."""
    global command
    at = sys.argv.index("--command")
    command = os.path.abspath(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    harness.main()


def clean_environment(**more):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("VPMM_", "STUB_", "SPY_", "LD_"))}
    env.update({key: str(value) for key, value in more.items()})
    return env


@functools.lru_cache(maxsize=None)
def public_command():
    """A copy of the command that every user can start, also where the checkout is its owner's alone."""
    folder = tempfile.mkdtemp(prefix="vpmm-public-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    return shutil.copy(command, folder)


def vpmm(*arguments, status=0, user=None, **environment):
    """The command, ended; `status` None: with any status."""
    program = command if user is None else public_command()
    done = subprocess.run([program, *map(str, arguments)], env=clean_environment(**environment), capture_output=True,
                          text=True, timeout=PATIENCE_S, user=user)
    assert status is None or done.returncode == status, (arguments, done)
    return done


def program():
    source = os.path.join(HERE, "seen.c")
    return harness.compile("seen", source, "-isystem", harness.options.cuda_headers,
                           os.path.join(harness.options.sim, "libcuda.so.1"), "-ldl", "-lpthread")


def taken():
    return harness.compile("taken.so", "-fPIC", "-shared", os.path.join(HERE, "taken.c"))


class Process:
    """A running program of seen.c."""

    def __init__(self, test, **environment):
        self.folder = tempfile.mkdtemp(dir=harness.work)
        env = clean_environment(LD_LIBRARY_PATH=harness.options.sim, LD_PRELOAD=harness.options.shared_library,
                                VPMM_STATS=os.path.join(self.folder, "statistics.json"),
                                VPMM_DUMP=os.path.join(self.folder, "dump"))
        env.update({key: str(value) for key, value in environment.items()})
        self.process = subprocess.Popen([program()], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        test.addCleanup(self.close)

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        answer = self.process.stdout.readline().strip()
        assert answer and not answer.startswith(("unexpected", "what is")), answer
        return answer

    def tell(self, line):
        """The line that answers."""
        self.write(line)
        return self.answer()

    def address(self):
        """Where its metadata begin."""
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as file:
            return next(line.partition("-")[0] for line in file if "/memfd:vpmm" in line)

    def stat(self):
        return json.loads(vpmm("stat", "--json", self.pid).stdout)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def dumped(self):
        return self.read("dump")

    def statistics(self):
        return json.loads(self.read("statistics.json"))

    def state(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self):
        """In the ordinary way."""
        self.process.stdin.close()
        assert self.process.wait(timeout=PATIENCE_S) == 0

    def kill(self):
        """It is not waited for."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
