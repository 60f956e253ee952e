# SPDX-License-Identifier: MIT
"""A copy of the source tree with a build folder of its own, in which bugs are planted one after another."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from typing import List, NamedTuple

from verdict import Run

BUILD_LIMIT_S = 3600
# What compiles fastest and still runs the tests fast. Assertions are on.
BUILD_OPTIONS = ["--buildtype=debugoptimized", "-Doptimization=1", "-Ddebug=false", "-Db_ndebug=false"]
OUTPUT_BYTES_MAX = 1 << 20


class BuildFailed(Exception):
    """The text is what the build said."""


class Test(NamedTuple):
    name: str
    command: List[str]
    environment: dict
    targets: List[str]


def is_left_out(name, is_top):
    return name in (".git", "__pycache__") or name.endswith(".pyc") or (is_top and name.startswith("build"))


def tree_files(root):
    """Every file of a checkout that is not built, relative to it; what git ignores here is known by its name."""
    for where, folders, names in os.walk(str(root)):
        is_top = pathlib.Path(where) == pathlib.Path(root)
        folders[:] = sorted(name for name in folders if not is_left_out(name, is_top))
        for name in sorted(names):
            if not is_left_out(name, False):
                yield os.path.relpath(os.path.join(where, name), str(root))


def stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(command, folder, limit_s, output_path, environment=None):
    """(exit code or None after `limit_s`, output, seconds). At the limit all that the command started ends."""
    begun = time.monotonic()
    with open(str(output_path), "w+b") as output:
        process = subprocess.Popen(command, cwd=str(folder), stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=dict(os.environ, **(environment or {})))
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            stop(process)
            code = None
        except BaseException:
            stop(process)
            raise
        output.seek(0)
        text = output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace")
    return code, text, time.monotonic() - begun


class WorkCopy:
    def __init__(self, root, folder, n_jobs=1):
        self.root = pathlib.Path(root)
        self.tree = pathlib.Path(folder, "tree")
        self.build_folder = pathlib.Path(folder, "build")
        self.log = pathlib.Path(folder, "log")
        self.n_jobs = n_jobs
        self.tests = {}

    def fetch(self):
        """Brings the copy up to date. A file that is the same keeps its time, so that nothing is built for it."""
        wanted = set(tree_files(self.root))
        self.tree.mkdir(parents=True, exist_ok=True)
        for name in set(tree_files(self.tree)) - wanted:
            (self.tree / name).unlink()
        for name in sorted(wanted):
            source, copy = self.root / name, self.tree / name
            data = source.read_bytes()
            if not copy.is_file() or copy.read_bytes() != data:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(data)
                shutil.copymode(str(source), str(copy))

    def command(self, command, what):
        code, text, _ = run(command, self.tree, BUILD_LIMIT_S, self.log)
        if code != 0:
            raise BuildFailed("%s: %s" % (what, text[-4000:] if code is not None else "not done in time"))
        return text

    def configure(self, options):
        if not (self.build_folder / "build.ninja").exists():
            self.command(["meson", "setup", str(self.build_folder), str(self.tree), *BUILD_OPTIONS, *options],
                         "meson setup")
        else:
            self.command(["ninja", "-C", str(self.build_folder), "build.ninja"], "meson")
        files = {target["id"]: target["filename"] for target in self.introspect("targets")}
        for test in self.introspect("tests"):
            name = "%s/%s" % (test["suite"][0].split(":")[-1], test["name"])
            targets = [os.path.relpath(path, str(self.build_folder)) for target in test["depends"]
                       for path in files[target]]
            self.tests[name] = Test(name, test["cmd"], test["env"], targets)

    def introspect(self, what):
        done = subprocess.run(["meson", "introspect", "--" + what, str(self.build_folder)], check=True,
                              stdout=subprocess.PIPE, universal_newlines=True)
        return json.loads(done.stdout)

    def build(self, names):
        """What these tests need. Raises BuildFailed."""
        targets = sorted({target for name in names for target in self.tests[name].targets})
        if targets:
            self.command(["ninja", "-C", str(self.build_folder), "-j", str(self.n_jobs), *targets], "ninja")

    def run_test(self, name, limit_s):
        test = self.tests[name]
        code, output, seconds = run(test.command, self.build_folder, limit_s, self.log, test.environment)
        return Run(name, code, output, seconds)

    def write(self, file, text):
        (self.tree / file).write_text(text, encoding="utf-8")

    def read(self, file):
        return (self.tree / file).read_text(encoding="utf-8")
