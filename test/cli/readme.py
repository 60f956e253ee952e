# SPDX-License-Identifier: MIT
"""README.md: its commands do what they say, typed exactly as they stand into a fresh copy of the source, and its links
lead somewhere. A stand-in for the user's program asks the simulated device for memory."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import rig

WORDS_MAX, COLUMNS_MAX = 900, 100
BUILD_TIMEOUT_S = 1500
MIB = 1 << 20

TRAIN = """\
import ctypes
import os
cuda = ctypes.CDLL("libcuda.so.1")
context, stream, block = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
for name, *arguments in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0),
                         ("cuCtxSetCurrent", context), ("cuStreamCreate", ctypes.byref(stream), 0),
                         ("cuMemAllocAsync", ctypes.byref(block), ctypes.c_size_t(64 << 20), stream),
                         ("cuMemFreeAsync", block, stream), ("cuStreamSynchronize", stream)):
    assert getattr(cuda, name)(*arguments) == 0, name
print("trained", os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
"""

# A compiler of a machine that has neither cmocka nor zlib.
POOR_COMPILER = """\
#!/bin/sh
for word; do
    case $word in
    *.c) ! grep -qs 'cmocka\\.h\\|zlib\\.h' "$word" || exit 1 ;;
    -lcmocka | -lz | *libcmocka* | *libz.*) exit 1 ;;
    esac
done
exec gcc "$@"
"""


def text():
    with open(os.path.join(rig.options.root, "README.md"), encoding="utf-8") as file:
        return file.read()


def blocks():
    """The lines of each block of shell commands, as they stand."""
    return [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", text(), re.MULTILINE | re.DOTALL)]


def copy_source(name):
    """The path of a copy of the source without what was built in it, but with the Python packages installed for it."""
    def is_left_out(folder, names):
        return [name for name in names if name in (".git", "__pycache__") or
                (folder == rig.options.root and name.startswith("build"))]
    path = os.path.join(rig.work, name)
    shutil.copytree(rig.options.root, path, ignore=is_left_out, symlinks=True)
    installed = os.path.join(rig.options.root, "build-venv")
    if os.path.exists(installed):
        os.symlink(installed, os.path.join(path, "build-venv"))
    return path


class Page(unittest.TestCase):
    def test_is_short(self):
        self.assertLess(len(text().split()), WORDS_MAX)
        self.assertEqual([line for line in text().splitlines() if len(line) > COLUMNS_MAX], [])

    def test_links(self):
        """Each leads to a file of the source and, where it names one, to a heading of that page."""
        pages = ["README.md", *sorted(glob.glob("docs/*.md", root_dir=rig.options.root))]
        links = [(page, link) for page in pages
                 for link in re.findall(r"\]\(([^)\s]+)\)", self.read(page)) if "://" not in link]
        self.assertGreater(len(links), 30)
        for page, link in links:
            path, _, heading = link.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            self.assertTrue(os.path.exists(os.path.join(rig.options.root, path)), f"{page}: {link}")
            if heading:
                titles = re.findall(r"^#+ (.*)$", self.read(path), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
                self.assertIn(heading, anchors, f"{page}: {link}")

    @staticmethod
    def read(path):
        with open(os.path.join(rig.options.root, path), encoding="utf-8") as file:
            return file.read()


class Commands(unittest.TestCase):
    """In the order of the page, in one copy of the source."""

    @classmethod
    def setUpClass(cls):
        cls.source = copy_source("source")
        cls.programs = os.path.join(rig.work, "programs")
        os.mkdir(cls.programs)
        # A fresh machine has no `python`.
        rig.script("programs/python", "#!/bin/sh\nexit 127\n")
        with open(os.path.join(cls.source, "train.py"), "w", encoding="utf-8") as file:
            file.write(TRAIN)
        cls.demo, *cls.first = blocks()[0]
        cls.shown = cls.typed(cls.demo)

    @classmethod
    def typed(cls, line, has_device=False, **more):
        """What a shell makes of the line in the folder of the source; the simulated device is the machine's driver where
        one is wanted."""
        environment = rig.environment(**more)
        built = os.path.join(cls.source, "build")
        environment["PATH"] = os.pathsep.join((cls.programs, environment["PATH"], built))
        environment["LD_LIBRARY_PATH"] = os.path.join(built, "src/tools/sim/libcuda") if has_device else ""
        done = subprocess.run(["bash", "-ec", line], cwd=cls.source, env=environment, capture_output=True, text=True,
                              timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{line} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def test_demo_ends_with_a_line_that_works(self):
        self.assertIn("VPMM maps free pages side by side", " ".join(self.shown.stdout.split()))
        line = self.shown.stdout.splitlines()[-1]
        self.assertIn("build/vpmm ", line)
        self.assertIn("held peak", self.typed(line).stdout)

    def test_first_lines_run_a_program_with_the_library(self):
        self.assertEqual(len(self.first), 2)
        for number, line in enumerate(self.first):
            told = os.path.join(rig.work, f"told-{number}.json")
            done = self.typed(line, has_device=True, VPMM_STATS=told)
            has_torch = "backend:cudaMallocAsync" if "--torch" in line else "None"
            self.assertEqual(done.stdout, f"trained {has_torch}\n")
            with open(told, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["requests"]["cudaMallocAsync"]["pool"], 1)

    def test_lines_of_the_build(self):
        installed = os.path.join(rig.work, "installed")
        for line in blocks()[1]:
            self.typed(line, DESTDIR=installed)
        for pattern in ("bin/vpmm", "**/vpmm/libvpmm.so", "**/vpmm.1", "**/libvpmm_api.a", "include/vpmm/vpmm.h"):
            self.assertEqual(len(glob.glob(f"{installed}/usr/local/{pattern}", recursive=True)), 1, pattern)

    def test_lines_that_show_memory(self):
        stats, record, summary, replay, plot = blocks()[2]
        self.assertRegex(self.typed(stats, has_device=True).stderr, r"(?m)^  served by the pool +1  100.0%$")
        self.typed(record, has_device=True)
        self.assertIn("live", self.typed(summary).stdout)
        self.assertIn("held peak", self.typed(replay).stdout)
        if subprocess.run(["python3", "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
            self.typed(plot)
            self.assertTrue(os.path.exists(os.path.join(self.source, "train.html")))
        else:
            self.assertRaisesRegex(AssertionError, "needs NumPy", self.typed, plot)


class Poor(unittest.TestCase):
    """A machine with a compiler, Meson, Ninja and CUDA's headers, and nothing else."""

    @classmethod
    def setUpClass(cls):
        compiler = rig.script("poor-gcc", POOR_COMPILER)
        nothing = rig.script("nothing", "#!/bin/sh\nexit 1\n")
        cls.machine = rig.script("poor.ini", f"[binaries]\nc = '{compiler}'\npkg-config = '{nothing}'\n"
                                             f"pkgconfig = '{nothing}'\ncmake = '{nothing}'\n", mode=0o644)

    def setup(self, name, *options):
        return rig.call("meson", "setup", os.path.join(rig.work, name), rig.options.root, "--native-file", self.machine,
                        f"-Dheaders_of_cuda={rig.options.cuda_headers}", *options)

    def test_is_enough_for_the_library_and_the_command(self):
        done = self.setup("poor")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for missing, package in (("cmocka", "libcmocka-dev"), ("zlib", "zlib1g-dev")):
            self.assertRegex(done.stdout, rf"(?m)^Message: {missing} is missing, .*\(apt-get install {package}\)$")
        steps = rig.call("ninja", "-C", os.path.join(rig.work, "poor"), "-n").stdout
        self.assertIn("libvpmm.so", steps)
        self.assertIn("vpmm", steps)
        self.assertNotIn("test/unit/", steps)

    def test_what_is_asked_for_must_be_there(self):
        for option, package in (("tests", "libcmocka-dev"), ("zlib", "zlib1g-dev")):
            done = self.setup(f"poor-{option}", f"-D{option}=enabled")
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout, rf"ERROR: Feature {option} cannot be (en|dis)abled: .*{package}")


class Headers(unittest.TestCase):
    """scripts/find-cuda-headers, in a copy of the source that has no toolkit."""

    def find(self, folder, **more):
        path = os.path.join(folder, "scripts/find-cuda-headers")
        os.makedirs(os.path.dirname(path))
        with open(os.path.join(rig.options.root, "scripts/find-cuda-headers"), encoding="utf-8") as file:
            script = file.read().replace("/usr/local/cuda", folder + "/no-toolkit")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        environment = rig.environment(CUDA_HOME="", **more)
        return subprocess.run(["sh", path], env=environment, capture_output=True, text=True, timeout=rig.TIMEOUT_S,
                              check=False)

    def test_build_venv_has_them(self):
        folder = os.path.join(rig.work, "with-venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", os.path.join(folder, "build-venv")], check=True)
        site = glob.glob(os.path.join(folder, "build-venv/lib/python3*/site-packages"))[0]
        headers = os.path.join(site, "nvidia/cu13/include")
        os.makedirs(headers)
        with open(os.path.join(headers, "cuda.h"), "w", encoding="utf-8"):
            pass
        done = self.find(folder)
        self.assertEqual((done.returncode, done.stdout), (0, headers + "\n"), done.stderr)

    def test_advice(self):
        folder = os.path.join(rig.work, "without")
        os.mkdir(folder)
        rig.script("without/python3", "#!/bin/sh\nexit 1\n")
        done = self.find(folder, PATH=folder + os.pathsep + os.environ["PATH"])
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("python3 -m venv build-venv && build-venv/bin/pip install nvidia-cuda-runtime", done.stderr)


if __name__ == "__main__":
    rig.main()
