# SPDX-License-Identifier: MIT
"""What the tests of the command share: where things are, building programs, and running a command in a clean
environment."""
import argparse
import atexit
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


def main():
    global options, work
    parser = argparse.ArgumentParser()
    for name in ("vpmm", "api", "sim", "root", "build", "cuda-headers"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--library", dest="shared_library", required=True)
    parser.add_argument("--cc", default="cc")
    options, rest = parser.parse_known_args()
    for name in ("vpmm", "shared_library", "api", "sim", "root", "build"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    work = tempfile.mkdtemp(prefix="vpmm-cli-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2)


def environment(**more):
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("VPMM_", "LD_", "PYTORCH_", "DESTDIR"))}
    return {**kept, "LD_LIBRARY_PATH": options.sim, **{key: str(value) for key, value in more.items()}}


def call(*command, folder=None, **more):
    """One finished process. Its environment has no variable of ours but those named."""
    return subprocess.run([str(word) for word in command], env=environment(**more), cwd=folder or work,
                          capture_output=True, text=True, timeout=TIMEOUT_S)


def vpmm(*arguments, **more):
    return call(options.vpmm, *arguments, **more)


def compile(name, *arguments, source=None):
    """The path of a program of the folder `programs`, or of `source`; built once."""
    path = os.path.join(work, name)
    if os.path.exists(path):
        return path
    source = source or os.path.join(HERE, "programs", name + ".c")
    done = call(*shlex.split(options.cc), *FLAGS, source, *arguments, "-o", path)
    if done.returncode:
        raise AssertionError(done.stderr)
    return path


def script(name, text, mode=0o755):
    path = os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)
    return path
