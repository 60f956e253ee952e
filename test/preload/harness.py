# SPDX-License-Identifier: MIT
"""What the preload tests share: where things are, building small programs and stub drivers, running them in a clean
environment. Each test runs its programs in processes of their own."""
import argparse
import atexit
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT_S = 120
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]

options = None
work = None


def parse():
    global options, work
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", dest="shared_library", required=True, help="the libvpmm.so under test")
    parser.add_argument("--root", required=True, help="the source tree")
    parser.add_argument("--cuda-headers", required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--sim", help="folder of the simulated device's libcuda.so.1")
    options, rest = parser.parse_known_args()
    options.shared_library = os.path.abspath(options.shared_library)
    work = tempfile.mkdtemp(prefix="vpmm-preload-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    return rest


def main():
    rest = parse()
    unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2)


def compile(output, *arguments):
    """Runs the compiler once for each output; the path of the result."""
    path = os.path.join(work, output)
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        command = [*shlex.split(options.cc), *FLAGS, *arguments, "-o", path]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(command)}\n{done.stderr}")
    return path


def program(name, *arguments, source=None):
    return compile(name, os.path.join(HERE, "programs", source or name + ".c"), *arguments, "-ldl", "-lpthread")


def shared(name, source, *arguments):
    return compile(name, "-fPIC", "-shared", os.path.join(HERE, source), *arguments, "-ldl")


def stub(form=5):
    """The folder of a stub libcuda.so.1 whose newest cuGetProcAddress has `form` arguments."""
    path = shared(f"stub{form}/libcuda.so.1", "stub/stub.c", f"-DSTUB_FORM={form}", "-Wl,-soname,libcuda.so.1",
                  "-Wl,-Bsymbolic-functions")
    return os.path.dirname(path)


def simulated(name, *flags, source=None):
    """A program of the folder `programs`, linked to the simulated device."""
    return program(name, *flags, "-isystem", options.cuda_headers, os.path.join(options.sim, "libcuda.so.1"),
                   source=source)


def run_simulated(path, *arguments, **more):
    return Run([path, *arguments], library_path=[options.sim], **more)


def spy():
    return shared("spy.so", "spy.c", "-O2")


class Run:
    """One finished process: its exit status, what it printed, and what it left in the files named in its environment."""

    def __init__(self, command, preload=None, library_path=(), timeout=TIMEOUT_S, **environment):
        self.files = tempfile.mkdtemp(dir=work)
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("VPMM_", "STUB_", "SPY_", "LD_"))}
        env["LD_LIBRARY_PATH"] = ":".join(library_path)
        if preload is None:
            preload = [options.shared_library]
        if preload:
            env["LD_PRELOAD"] = " ".join(preload)
        env["STUB_CALLS"] = os.path.join(self.files, "calls")
        env["SPY_LOG"] = os.path.join(self.files, "spy")
        env["VPMM_STATS"] = os.path.join(self.files, "statistics-%p.json")
        env.update({key: str(value) for key, value in environment.items()})
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
        self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr

    def read(self, name):
        path = os.path.join(self.files, name)
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()

    @property
    def all_statistics(self):
        """What each process told at its end that asked for memory, unless the test sent that elsewhere."""
        names = sorted(name for name in os.listdir(self.files) if name.startswith("statistics-"))
        return [json.loads("\n".join(self.read(name))) for name in names]

    @property
    def statistics(self):
        """The same of each process that had a pool."""
        return [told for told in self.all_statistics if told["devices"]]

    @property
    def calls(self):
        """Names of the stub's watched functions, in the order of the calls."""
        return self.read("calls")

    @property
    def look_ups(self):
        """Rows of the spy: each a list of words."""
        return [line.split() for line in self.read("spy")]

    def words(self):
        """The program's output as {first word: rest} of each line."""
        return {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in self.output.splitlines() if " " in line}
