#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How `vpmm plot` is called: its refusals are in the words of the other commands, and - is standard input."""
import gzip
import json
import os
import subprocess

import plotted
from plotted import MIB, arguments


class Words(plotted.Case):
    def test_refusals(self):
        out = ["-o", self.folder / "x.svg"]
        for words, said in (
                (["--kind", "pie"], "--kind 'pie' is not accepted: it takes memory, map, sizes, compare or all"),
                (["--colour", "x"], "--colour 'x' is not accepted: it takes size, stream or path"),
                (["--color=x"], "--color 'x' is not accepted: it takes size, stream or path"),
                (["--device", "256"], "--device '256' is not accepted: it takes a number from 0 to 255"),
                (["--from", "-3"], "--from '-3' is not accepted: it takes seconds, or a number with ns, us, ms, s, min or h"),
                (["--title"], "--title needs a value"), (["--title="], "--title needs a value"), (["-o"], "-o needs a value"),
                (["--dark=yes"], "--dark takes no value"), (["--nothing"], "there is no option --nothing"),
                (["--nothing=1"], "there is no option --nothing"), (["-q"], "there is no option -q"),
                (["--d", "1"], "there is no option --d"),
                (["-", "-:b"], "standard input is one FILE, and - stands for it only once")):
            with self.subTest(words):
                result = self.run_plot(self.trace, *out, *words)
                self.assertEqual((result.returncode, result.stdout, result.stderr),
                                 (2, "", f"vpmm plot: {said}\nSee 'vpmm help plot'.\n"))

    def test_options_anywhere_and_shortened(self):
        self.started("x.html", "--dar", self.trace, "--blo=5")
        self.started("-x.html", "--title", "-:b", "--ki", "all", self.trace)

    def test_names_that_would_move_the_cursor(self):
        result = self.run_plot("a\x1b[2Jb", "-o", self.folder / "x.svg")
        self.assert_refused(result, 2, "a?[2Jb")


    def test_names_that_begin_with_a_hyphen(self):
        """Also where the command for traces has to convert the file."""
        for name in "-x.csv", "-":
            (self.folder / name).write_text(f"A,1000,{8 * MIB},5,100,a\nF,1000,,5,300,a\n")
            self.started("x.html", f"./{name}", cwd=self.folder, stdin=subprocess.DEVNULL)


class Output(plotted.Case):
    def test_what_is_replaced_keeps_its_rights_and_its_links(self):
        real, link = self.folder / "real.svg", self.folder / "link.svg"
        link.symlink_to("real.svg")
        self.plot("link.svg", self.trace)
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(real.stat().st_mode & 0o777, 0o666 & ~mask)
        drawn = real.read_bytes()
        real.write_bytes(b"")
        real.chmod(0o640)
        self.plot("link.svg", self.trace)
        self.assertTrue(link.is_symlink())
        self.assertEqual((real.read_bytes(), real.stat().st_mode & 0o777), (drawn, 0o640))
        self.assertEqual(len(list(self.folder.iterdir())), 3)

    def test_a_pipe_is_written_to(self):
        pipe = self.folder / "pipe.svg"
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            self.addCleanup(reader.kill)
            self.plot("pipe.svg", self.trace)
            if not pipe.is_fifo():
                reader.kill()
            self.assertIn(b"<svg", reader.communicate()[0])
        self.assertTrue(pipe.is_fifo())


class Silence(plotted.Case):
    def test_matplotlib_says_nothing_of_its_cache(self):
        """Where it can keep none, and where it makes one and that takes long: its timer for that is over at once."""
        (self.folder / "sitecustomize.py").write_text(
            "import threading\ntimer = threading.Timer\nthreading.Timer = lambda _, *rest: timer(0, *rest)\n")
        for cache in "/proc/nowhere", self.folder / "cache":
            self.started("x.png", self.trace, env={**os.environ, "PYTHONPATH": str(self.folder), "MPLCONFIGDIR": str(cache)})


class StandardInput(plotted.Case):
    def page_of(self, data, *words):
        """The page, or the result of a refusal."""
        out = self.folder / "piped.html"
        done = subprocess.run([arguments.program, "plot", "-o", out, *words], input=data, capture_output=True, check=False,
                              timeout=120)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        return out.read_text()

    def test_each_form(self):
        csv = f"A,1000,{8 * MIB},5,100,a\nF,1000,,5,300,a\n".encode()
        replay = json.dumps({"replays": [{"through": "pool", "over_time": [[0, 1, 2], [5, 3, 4]]}]}).encode()
        for data in (self.trace.read_bytes(), csv, gzip.compress(csv), b" \n" + replay):
            self.assertIn("standard input", self.page_of(data, "-"))
            self.assertIn("piped thing", self.page_of(data, "-:piped thing"))
        self.assertEqual(self.page_of(self.trace.read_bytes(), "-:x").count('"name"'),
                         self.page_of(b"", f"{self.trace}:x").count('"name"'))

    def test_a_file_of_that_name(self):
        (self.folder / "-").write_bytes(self.trace.read_bytes())
        self.started("x.html", "./-", cwd=self.folder, stdin=subprocess.DEVNULL)

    def test_refusals(self):
        for data, said in ((b"", "empty"), (b"A,1000,8,5,100,a\nA,what\n", "line 2"), (b'{"a": 1}', "vpmm replay"),
                           (b"VPMMTRC\n", "cut off")):
            with self.subTest(data):
                result = self.run_plot("-", "-o", self.folder / "x.svg", input=data.decode())
                self.assert_refused(result, 2, "standard input: ", said)
                self.assertNotIn("/", result.stderr.splitlines()[0])
        closed = subprocess.run(["sh", "-c", '"$0" plot - -o "$1" <&-', arguments.program, self.folder / "x.svg"],
                                capture_output=True, text=True, check=False, timeout=120)
        self.assert_refused(closed, 2, "standard input")

    def test_what_has_no_end(self):
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
            result = self.run_plot("-", "-o", self.folder / "x.svg", stdin=endless.stdout)
            endless.kill()
        self.assert_refused(result, 2, "standard input: none of the forms")


if __name__ == "__main__":
    plotted.main()
