# SPDX-License-Identifier: MIT
"""What is installed works where it was put: the command finds the library beside it, a program builds with what
pkg-config says, and the man page and the completion tell of every command and option."""
import glob
import os
import re
import shlex
import shutil
import subprocess
import unittest

import rig


def find(*names):
    found = glob.glob(os.path.join(rig.work, "stage", "**", *names), recursive=True)
    return found[0] if found else None


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stage = os.path.join(rig.work, "stage")
        done = rig.call("meson", "install", "-C", rig.options.build, "--no-rebuild", "--destdir", cls.stage)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        cls.vpmm = find("bin", "vpmm")
        cls.shared_library = find("vpmm", "libvpmm.so")

    def test_command_finds_the_library_beside_it(self):
        done = rig.call(self.vpmm, "run", "env")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"LD_PRELOAD={self.shared_library}\n", done.stdout)

    def test_command_under_another_name_elsewhere(self):
        link = os.path.join(rig.work, "memory")
        os.symlink(self.vpmm, link)
        self.assertIn(f"LD_PRELOAD={self.shared_library}\n", rig.call(link, "run", "env").stdout)

    def package(self, *arguments):
        done = rig.call("pkg-config", *arguments, "vpmm", PKG_CONFIG_PATH=os.path.dirname(find("vpmm.pc")),
                        PKG_CONFIG_SYSROOT_DIR=self.stage)
        self.assertEqual(done.returncode, 0, done.stderr)
        return shlex.split(done.stdout)

    def test_program_builds_with_pkg_config(self):
        source = os.path.join(rig.HERE, "programs", "installed.c")
        for compiler, name in (("cc", "in-c"), ("c++", "in-cxx")):
            if not shutil.which(compiler):
                self.skipTest(f"there is no {compiler}")
            path = os.path.join(rig.work, name)
            language = ["-x", "c++"] if compiler == "c++" else []
            done = rig.call(compiler, *language, "-Wall", "-Wextra", "-Werror", source, "-x", "none",
                            *self.package("--cflags", "--libs"), "-o", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(rig.call(path).stdout, "none: libvpmm.so is not preloaded\n")
            version = self.package("--modversion")[0]
            self.assertEqual(rig.call(self.vpmm, "run", path).stdout, f"{version}: the device has no pool\n")

    def test_package_names_the_library(self):
        preload = self.package("--variable=preload")[0]
        self.assertEqual(self.stage + preload.removeprefix(self.stage), self.shared_library)

    def test_header(self):
        self.assertEqual(os.listdir(os.path.dirname(find("vpmm", "vpmm.h"))), ["vpmm.h"])

    def test_man_page(self):
        path = find("man1", "vpmm.1*")
        with open(path, encoding="utf-8") as file:
            text = file.read().replace("\\-", "-").replace("\\e", "\\")
        for name in self.names():
            help_text = rig.call(self.vpmm, "help", name).stdout
            for option in re.findall(r"^  (-\S.*?)(?:  |$)", help_text, re.MULTILINE):
                self.assertIn(f"\n.B {option}\n", text)
        if shutil.which("man"):
            done = rig.call("man", "--warnings", "-E", "UTF-8", "-l", path, MANWIDTH="80", LC_ALL="C.UTF-8")
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def names(self):
        return re.findall(r"^  ([\w-]+) ", rig.call(self.vpmm, "--help").stdout, re.MULTILINE)

    def complete(self, *words):
        script = ('PATH=$2:$PATH; source "$1" && shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _vpmm; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", find("completions", "vpmm"),
                               os.path.dirname(self.vpmm), "vpmm", *words],
                              env=rig.environment(), capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_completion(self):
        names = set(self.names())
        self.assertEqual(self.complete(""), names | {"--help", "--version"})
        self.assertEqual(self.complete("ru"), {"run"})
        self.assertEqual(self.complete("help", ""), names)
        self.assertEqual(self.complete("run", "--page"), {"--page-size", "--pages"})
        self.assertEqual(self.complete("run", "--pages", "=", "8", "--fr"), {"--free-sync"})
        self.assertEqual(self.complete("run", "--pages", "8", "--fr"), {"--free-sync"})
        self.assertEqual(self.complete("run", "--trace", ""), set())
        for before in (("--",), (), ("--pages", "8"), ("--stats", "=", "json"), ("--limit", "=", "1G", "--")):
            self.assertIn("printenv", self.complete("run", *before, "printen"), before)
        self.assertEqual(self.complete("run", "--", "ls", "--free"), set())


class Page(unittest.TestCase):
    def test_page_is_what_the_command_says(self):
        done = rig.call(os.path.join(rig.options.root, "scripts/gen-command"), "--check", rig.options.vpmm)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    rig.main()
