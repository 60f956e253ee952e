# SPDX-License-Identifier: MIT
"""`vpmm run` and `vpmm help`: what the program is given, and what is refused before it starts."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import rig

SHOW = ("env",)
CANNOT_EXECUTE, NOT_FOUND = 126, 127


def run(*arguments, **more):
    return rig.vpmm("run", *arguments, **more)


class Environment(unittest.TestCase):
    def shown(self, *arguments, **more):
        done = run(*arguments, *SHOW, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    def test_preloads_the_library_of_its_build(self):
        self.assertEqual(self.shown()["LD_PRELOAD"], rig.options.shared_library)

    def test_keeps_what_is_preloaded_already(self):
        self.assertEqual(self.shown(LD_PRELOAD="libm.so.6 libdl.so.2")["LD_PRELOAD"],
                         f"libm.so.6 libdl.so.2:{rig.options.shared_library}")

    def test_is_preloaded_once(self):
        link = os.path.join(rig.work, "again.so")
        os.symlink(rig.options.shared_library, link)
        for present in (rig.options.shared_library, f"libm.so.6:{rig.options.shared_library}", link):
            self.assertEqual(self.shown(LD_PRELOAD=present)["LD_PRELOAD"], present)

    def test_each_option_is_a_variable(self):
        shown = self.shown("--page-size", "4M", "--pages", "80%", "--limit=1G", "--free-sync", "--only", "env,sh",
                           "--set", "slack=512M", "--set", "VPMM_IDLE_MS=5", "--set", "dump-format=json", "--")
        self.assertEqual({name: value for name, value in shown.items() if name.startswith("VPMM_")}, {
            "VPMM_PAGE_SIZE": "4M", "VPMM_PAGES": "80%", "VPMM_LIMIT": "1G", "VPMM_FREE_SYNC": "1",
            "VPMM_ONLY": "env,sh", "VPMM_SLACK": "512M", "VPMM_IDLE_MS": "5", "VPMM_DUMP_FORMAT": "json"})

    def test_statistics(self):
        path = os.path.join(rig.work, "shown.json")
        for option, value in (("--stats", "1"), ("--stats=json", "json"), (f"--stats={path}", path)):
            self.assertIn(f"VPMM_STATS={value}\n", run(option, *SHOW).stdout)

    def test_the_last_of_several_values_counts(self):
        self.assertEqual(self.shown("--pages", "1", "--set", "pages=2", VPMM_PAGES=3)["VPMM_PAGES"], "2")

    def test_what_the_user_set_stays(self):
        self.assertEqual(self.shown(VPMM_PAGES=3)["VPMM_PAGES"], "3")

    def test_torch(self):
        shown = self.shown("--torch")
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            self.assertEqual(shown[name], "backend:cudaMallocAsync")
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            shown = self.shown("--torch", **{name: "expandable_segments:True"})
            self.assertEqual({key: value for key, value in shown.items() if key.startswith("PYTORCH")},
                             {name: "expandable_segments:True"})

    def test_says_what_it_sets(self):
        done = run("-v", "--torch", "--pages", "1", "true", PYTORCH_CUDA_ALLOC_CONF="x:y")
        self.assertEqual(done.stderr.splitlines(), [
            "vpmm run: VPMM_PAGES=1", "vpmm run: VPMM_LOG=info",
            "vpmm run: PYTORCH_CUDA_ALLOC_CONF=x:y is left as it is",
            f"vpmm run: LD_PRELOAD={rig.options.shared_library}"])
        self.assertNotIn("VPMM_LOG", run("-v", "true", VPMM_LOG="debug").stderr)

    def test_trace(self):
        self.assertEqual(self.shown("--trace", "/tmp/x-%p.trace")["VPMM_TRACE"], "/tmp/x-%p.trace")


class Library(unittest.TestCase):
    def test_named(self):
        copy = os.path.join(rig.work, "copy.so")
        shutil.copy(rig.options.shared_library, copy)
        for arguments, more in ((("--library", copy), {}), ((), {"VPMM_LIBRARY": copy})):
            done = run(*arguments, *SHOW, **more)
            self.assertIn(f"LD_PRELOAD={copy}\n", done.stdout)

    def test_the_library_knows_the_commands_variable(self):
        """It warns of every other name that it does not know."""
        program = rig.compile("allocate", "-isystem", rig.options.cuda_headers,
                              os.path.join(rig.options.sim, "libcuda.so.1"))
        for name, n_warnings in (("VPMM_LIBRARY", 0), ("VPMM_LIBRARIES", 1)):
            done = run(program, **{"VPMM_LIBRARY": rig.options.shared_library, name: rig.options.shared_library})
            self.assertEqual((done.returncode, done.stderr.count("is not an option")), (0, n_warnings), done.stderr)

    def test_no_library(self):
        text = rig.script("text.so", "no library\n")
        space = os.path.join(rig.work, "a b.so")
        shutil.copy(rig.options.shared_library, space)
        other = rig.compile("other.so", "-fPIC", "-shared", "-ldl", source=rig.script(
            "other.c", "void *vpmm_interface_1(void);\nvoid *other(void);\nvoid *other(void) { return vpmm_interface_1(); }\n"))
        cut = os.path.join(rig.work, "cut.so")
        with open(rig.options.shared_library, "rb") as whole, open(cut, "wb") as part:
            part.write(whole.read()[:-5000])
        for path, status, what in (("/no/such.so", 2, "cannot be read"), (text, 2, "no shared library"),
                                   (space, 1, "must have no space"), (other, 1, "it has no vpmm_interface_1"),
                                   (cut, 1, "it has no vpmm_interface_1")):
            marker = os.path.join(rig.work, "started")
            done = run("--library", path, "touch", marker)
            self.assertFalse(os.path.exists(marker))
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(what, done.stderr)
            self.assertIn(path, done.stderr)

    def test_not_beside_the_command(self):
        lonely = os.path.join(rig.work, "lonely")
        os.mkdir(lonely)
        shutil.copy(rig.options.vpmm, lonely)
        done = rig.call(os.path.join(lonely, "vpmm"), "run", "true")
        if os.path.exists(os.path.join("/usr/local/lib/vpmm/libvpmm.so")):
            self.skipTest("it is installed on this machine")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("--library or VPMM_LIBRARY", done.stderr)


class Program(unittest.TestCase):
    def test_its_exit_status(self):
        self.assertEqual(run("sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(run("sh", "-c", "kill -9 $$").returncode, -9)

    def test_its_arguments_are_its_own(self):
        done = run("printf", "%s\n", "--stats", "-v", "a b", "")
        self.assertEqual((done.stdout, done.stderr), ("--stats\n-v\na b\n\n", ""))

    def test_not_found_and_not_executable(self):
        plain = rig.script("plain", "#!/bin/sh\n", mode=0o644)
        for name, status in (("no-such-program", NOT_FOUND), ("/no/such/program", NOT_FOUND), (plain, CANNOT_EXECUTE),
                             (rig.work, CANNOT_EXECUTE)):
            done = run(name)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(f"vpmm run: {name}: ", done.stderr)

    def test_is_served_by_the_pool(self):
        program = rig.compile("allocate", "-isystem", rig.options.cuda_headers,
                              os.path.join(rig.options.sim, "libcuda.so.1"))
        done = run("--stats", "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^  mallocs +1$")

    def test_warns_where_the_preload_does_not_reach(self):
        program = rig.compile("static", "-static", source=rig.script("static.c", "int main(void) { return 3; }\n"))
        done = run(program)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr, f"vpmm run: warning: {program} is linked statically: the library does not "
                                      "reach it\n")
        caller = rig.script("of-static", f"#!{program}\n")
        self.assertIn(f"{program} is linked statically", run(caller).stderr)
        plain = rig.compile("dynamic", source=rig.script("dynamic.c", "int main(void) { return 3; }\n"))
        self.assertEqual(run(plain).stderr, "")

    def test_warns_of_other_rights(self):
        plain = rig.compile("dynamic", source=rig.script("dynamic.c", "int main(void) { return 3; }\n"))
        foreign = os.path.join(rig.work, "foreign")
        shutil.copy(plain, foreign)
        if os.geteuid() != 0:
            self.skipTest("only root can make a program that has another owner's rights")
        os.chown(foreign, 65534, 65534)
        os.chmod(foreign, 0o4755)
        self.assertIn("runs with other rights than yours", run(foreign).stderr)
        os.chmod(foreign, 0o755)
        self.assertEqual(run(foreign).stderr, "")


class Statistics(unittest.TestCase):
    """`vpmm run --stats` tells of a program also where it asked for nothing."""

    NOTHING = r"^vpmm\[\d+\] statistics of ([\w.]+): it asked CUDA for no memory\n$"

    def program(self, n_arguments):
        return [rig.compile("asks", "-isystem", rig.options.cuda_headers, os.path.join(rig.options.sim, "libcuda.so.1")),
                *["x"] * n_arguments]

    def test_a_program_that_asked_for_nothing(self):
        python = [sys.executable, "-c", "print('asks')"]
        for words in python, self.program(0), self.program(1), self.program(2):
            bare, done = rig.call(*words), run("--stats", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, self.NOTHING)
            self.assertEqual(done.stderr.split()[3], os.path.basename(words[0]) + ":")
            self.assertEqual((bare.stdout, done.stdout), ("asks\n", "asks\n"))

    def test_one_whose_requests_were_too_small(self):
        done = run("--stats", *self.program(3), VPMM_MIN_SIZE="page")
        self.assertEqual((done.returncode, done.stdout), (0, "asks\n"), done.stderr)
        self.assertRegex(done.stderr, r"(?m)^  smaller than the threshold +1  100\.0%$")

    def test_what_a_program_starts_is_not_told_of(self):
        self.assertRegex(run("--stats", sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])").stderr,
                         self.NOTHING)
        self.assertEqual(run(sys.executable, "-c", "", VPMM_STATS=1).stderr, "")

    def test_a_file_is_one_document(self):
        path = os.path.join(rig.work, "told.json")
        done = run(f"--stats={path}", "env")
        self.assertEqual((done.stderr, os.path.exists(path)), ("", True))
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        self.assertEqual((told["program"], told["devices"]), ("env", []))
        self.assertEqual({n for kind in told["requests"].values() for n in kind.values()}, {0})

    def test_a_program_that_starts_another_leaves_its_figures(self):
        path = os.path.join(rig.work, "inner.json")
        done = run(f"--stats={path}", sys.executable, "-c",
                   f"import subprocess; subprocess.run({self.program(3)!r}, check=True)")
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        self.assertEqual((told["program"], told["requests"]["cudaMalloc"]["pool"]), ("asks", 1))
        self.assertRegex(done.stderr, self.NOTHING)


class Refusals(unittest.TestCase):
    def refused(self, *arguments, **more):
        marker = os.path.join(rig.work, "marker")
        done = run(*arguments, "touch", marker, **more)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(os.path.exists(marker))
        self.assertTrue(done.stderr.startswith("vpmm run: "))
        return done.stderr.splitlines()[0]

    def test_values(self):
        self.assertEqual(self.refused("--pages", "lots"),
                         "vpmm run: VPMM_PAGES=lots is not accepted: it takes a number of pages, or a percentage of "
                         "the device from 0% to 100%")
        for option in ("--page-size=0", "--limit=101%", "--stats=out", "--set=slack=x", "--set=log=loud"):
            self.assertIn(" is not accepted: it takes ", self.refused(option))

    def test_names(self):
        self.assertIn("VPMM_SLAK is not an option", self.refused("--set", "slak=1M"))
        self.assertIn("did you mean VPMM_SLACK?", self.refused("--set", "slak=1M"))

    def test_forms(self):
        for option in ("slack", "=1M"):
            self.assertIn("--set takes NAME=VALUE", self.refused("--set", option))
        self.assertIn("slack needs a value", self.refused("--set", "slack="))
        self.assertIn("there is no option --frob", self.refused("--frob"))
        self.assertEqual(self.refused("-vx"), "vpmm run: there is no option -x")
        self.assertEqual(self.refused("--torch=1"), "vpmm run: --torch takes no value")
        done = run("--pages")
        self.assertEqual((done.returncode, done.stderr.splitlines()[0]), (2, "vpmm run: --pages needs a value"))
        for option in ("pages", "library", "trace", "stats"):
            self.assertEqual(self.refused(f"--{option}="), f"vpmm run: --{option} needs a value")
        for arguments in ((), ("-v",), ("--",)):
            self.assertEqual(run(*arguments).returncode, 2)

    def test_the_environment_is_the_librarys_to_complain_of(self):
        self.assertEqual(run("true", VPMM_PAGES="lots").returncode, 0)


class Help(unittest.TestCase):
    def test_lists_commands_and_topics(self):
        done = rig.vpmm("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        names, topics = (re.findall(r"^  (\w+) ", part, re.MULTILINE) for part in done.stdout.split("\nor about:\n"))
        self.assertGreaterEqual(len(names), 8)
        for name in names + topics:
            text = rig.vpmm("help", name)
            self.assertEqual((text.returncode, text.stderr), (0, ""), name)
            self.assertLessEqual(max(len(line) for line in text.stdout.splitlines()), 110, name)
            if name in names:
                self.assertEqual(rig.vpmm(name, "--help").stdout, text.stdout)
        bare = rig.vpmm()
        self.assertEqual((bare.returncode, bare.stdout, bare.stderr), (2, "", done.stdout))

    def test_run_tells_of_each_option(self):
        text = rig.vpmm("help", "run").stdout
        self.assertEqual(text, run("--help").stdout)
        with open(os.path.join(rig.options.root, "src/tools/cli/cli_run.c"), encoding="utf-8") as file:
            options = re.findall(r'^    \{"([\w-]+)", \w+_argument', file.read(), re.MULTILINE)
        self.assertGreater(len(options), 10)
        for option in options:
            self.assertRegex(text, rf"--{option}\b")

    def test_options_are_those_of_the_table(self):
        text = rig.vpmm("help", "options").stdout
        with open(os.path.join(rig.options.root, "src/lib/config/options.def"), encoding="utf-8") as file:
            names = re.findall(r"^OPTION\((\w+)", file.read(), re.MULTILINE)
        self.assertEqual(re.findall(r"^  VPMM_(\w+) ", text, re.MULTILINE), names)

    def test_unknown(self):
        self.assertRegex(rig.vpmm("--version").stdout, r"^vpmm \d+\.\d+")
        for arguments in (("help", "nothing"), ("nothing",), ("help", "run", "run"), ("--version", "x"), ("--help", "run", "x")):
            done = rig.vpmm(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([rig.options.vpmm, "help", "options"], stdout=full, stderr=subprocess.PIPE,
                                  env=rig.environment(), check=False)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    rig.main()
