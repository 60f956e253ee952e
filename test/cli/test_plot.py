#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`vpmm plot`: each kind of picture in each form says what is in the trace; whatever is wrong is said in one line."""
import json
import os
import pathlib
import random
import shutil
import stat
import struct
import subprocess
import xml.etree.ElementTree as xml

import native_trace as native
import plotted
from plotted import BASE, MIB, arguments

SVG = "{http://www.w3.org/2000/svg}"


def ids(path):
    return {element.get("id") for element in xml.parse(path).iter() if element.get("id")}


def texts(path):
    return [element.text for element in xml.parse(path).iter(SVG + "text") if element.text]


def png_size(path):
    signature, length, name, width, height = struct.unpack(">8sI4sII", path.read_bytes()[:24])
    assert (signature, length, name) == (b"\x89PNG\r\n\x1a\n", 13, b"IHDR")
    return width, height


class Pictures(plotted.Case):
    def test_memory(self):
        svg = self.plot("memory.svg", self.trace, "--kind", "memory")
        self.assertLessEqual({"live", "held", "pending", "passed", "failed", "peak"}, ids(svg))
        self.assertNotIn("address map", ids(svg))
        found = texts(svg)
        for text in ("held, at most 128 MiB", "live, at most 112 MiB", "freed, work pending", "1 refused", "small",
                     "of it, served by CUDA", "time since the trace began, ms", "0", "32 MiB", "128 MiB"):
            self.assertIn(text, found)

    def test_map(self):
        svg = self.plot("map.svg", self.trace, "--kind", "map")
        self.assertLessEqual({"held, free", "zombie", f"{BASE:#x}", f"{plotted.OF_CUDA:#x}", "+128 MiB"}, set(texts(svg)))
        by_stream = self.plot("stream.svg", self.trace, "--kind", "map", "--colour", "stream")
        self.assertLessEqual({"stream 0", "stream 1", "stream 2"}, set(texts(by_stream)))
        by_path = self.plot("path.svg", self.trace, "--kind", "map", "--colour", "path")
        self.assertLessEqual({"grow", "stitch", "CUDA"}, set(texts(by_path)))

    def test_sizes(self):
        svg = self.plot("sizes.svg", self.trace, "--kind", "sizes")
        self.assertLessEqual({"4 requests by size", "112 MiB live at the peak, by size", "32 MiB", "64 MiB", "grow",
                              "stitch", "CUDA"}, set(texts(svg)))
        self.assertIn("requests: stitch", ids(svg))

    def test_compare(self):
        other = native.write(self.folder / "other.vpmm", [
            native.entry(native.MALLOC, 0, BASE, 256 * MIB, 1, native.FIT), native.entry(native.FREE, 9000, BASE)])
        svg = self.plot("both.svg", self.trace, f"{other}:with $x$ & <b>", "--kind", "compare")
        self.assertLessEqual({"small: live", "small: held", "small: held peak", "with $x$ & <b>: live"}, ids(svg))
        self.assertNotIn("with $x$ & <b>: held", ids(svg))
        self.assertLessEqual({"small", "with $x$ & <b>", "128 MiB held (1.14×)", "256 MiB"}, set(texts(svg)))
        several = texts(self.plot("all.svg", self.trace, f"{other}:b"))
        self.assertLessEqual({"small: addresses", "b: addresses", "Peaks: live (full), held (pale)"}, set(several))

    def test_all_of_one(self):
        svg = self.plot("all.svg", self.trace)
        self.assertLessEqual({"live", "address map", "requests: grow", "bytes at the peak"}, ids(svg))
        self.assertIn("4 blocks in 9 ms", " ".join(texts(svg)))
        self.assertEqual(svg.read_bytes(), self.plot("again.svg", self.trace).read_bytes())
        self.assertNotIn("http", svg.read_text().split("<g ", 1)[1].replace("http://www.w3.org/", ""))

    def test_sizes_in_pixels(self):
        self.assertEqual(png_size(self.plot("a.png", self.trace, "--width", 640, "--height", 480, "--dpi", 60)), (640, 480))
        self.assertEqual(png_size(self.plot("b.png", self.trace, "--kind", "map", "--dark"))[0], 1100)

    def test_a_part_of_the_time(self):
        svg = self.plot("part.svg", self.trace, "--kind", "memory", "--from", "4.5ms", "--to", "0.0075",
                        "--title", "a $part$")
        self.assertLessEqual({"held, at most 128 MiB", "live, at most 112 MiB", "a $part$"}, set(texts(svg)))
        late = self.plot("late.svg", self.trace, "--from", "9200us")
        self.assertIn("held, at most 48 MiB", texts(late))

    def test_devices(self):
        trace = native.write(self.folder / "two.vpmm", [
            native.entry(native.MALLOC, at, BASE + at * MIB, MIB << at, device=1 if at else 7) for at in range(3)])
        self.assertIn("live, at most 6 MiB", texts(self.plot("most.svg", trace, "--kind", "memory")))
        self.assertIn("live, at most 1 MiB", texts(self.plot("seven.svg", trace, "--kind", "memory", "--device", 7)))
        self.assert_refused(self.run_plot(trace, "-o", self.folder / "x.svg", "--device", 2), 1, "device 2", "1, 7")

    def test_as_installed(self):
        done = subprocess.run(["meson", "install", "-C", arguments.build, "--no-rebuild", "--destdir", self.folder / "root"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        commands = list((self.folder / "root").rglob("bin/vpmm"))
        self.assertEqual(len(commands), 1)
        link = self.folder / "link"
        link.symlink_to(commands[0])
        for name in ("a.svg", "a.html"):
            self.started(name, self.trace, program=link)
        shutil.rmtree(next((self.folder / "root").rglob("share/vpmm/vpmm_plot")))
        self.assert_refused(self.run_plot(self.trace, "-o", self.folder / "x.svg", program=link), 1, "vpmm_plot", "missing")


class Kept(plotted.Case):
    """The pictures of docs/PLOT.md, which scripts/pictures made."""

    def test_they_are_there_and_small(self):
        page = (arguments.root / "docs/PLOT.md").read_text()
        for name, said in (("memory", "live"), ("map", "address map"), ("sizes", "bytes at the peak"),
                           ("compare", "default: held")):
            path = arguments.root / f"docs/pictures/{name}.svg"
            self.assertIn(f"](pictures/{name}.svg)", page)
            self.assertIn(said, ids(path))
            self.assertLess(path.stat().st_size, 150_000)


class OtherForms(plotted.Case):
    """They are converted by the command that the Python part is told of; here it is a stand-in but for one test."""

    def test_csv(self):
        csv = self.folder / "some.csv"
        csv.write_text(f"A,1000,{8 * MIB},5,100,a\nA,9000,{4 * MIB},7,200,s\nF,1000,,5,300,a\n")
        svg = self.plot("csv.svg", csv, "--colour", "stream")
        self.assertLessEqual({"some", "2 blocks in 200 µs", "live, at most 12 MiB", "stream 5", "stream 7",
                              "2 requests by size"}, set(texts(svg)))
        self.assertNotIn("held", ids(svg))
        self.assertNotIn("zombie", texts(svg))
        csv.write_text(f"A,1000,{8 * MIB},5,100,a\nA,what\n")
        self.assert_refused(self.run_plot(csv, "-o", self.folder / "x.svg"), 2, "some.csv")

    def stand_in(self, script):
        path = self.folder / "vpmm"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def run_part(self, vpmm, *words):
        part = arguments.root / "src/tools/python/vpmm_plot/__main__.py"
        return subprocess.run(["python3", "-B", str(part), str(vpmm), *map(str, words)], text=True, capture_output=True,
                              check=False, timeout=120)

    def test_what_is_converted_is_drawn(self):
        log = self.folder / "words"
        vpmm = self.stand_in(f'echo "$1 $2 $4 $5 $6" > {log}\ncat "$3" > /dev/null && cp {self.trace} "$7"\n')
        other = self.folder / "other.csv.gz"
        other.write_text("A,1000,5,0,0,a\n")
        result = self.run_part(vpmm, other, "-o", self.folder / "out.svg", "--kind", "memory")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(log.read_text(), "trace convert --to vpmm -o\n")
        self.assertIn("live, at most 112 MiB", texts(self.folder / "out.svg"))

    def test_what_is_not_converted_is_said(self):
        other = self.folder / "other.csv"
        other.write_text("nonsense\n")
        vpmm = self.stand_in('echo "vpmm trace: $3: line 1 is none" >&2\necho "See help." >&2\nexit 2\n')
        result = self.run_part(vpmm, other, "-o", self.folder / "out.svg")
        self.assertEqual((result.returncode, result.stderr), (2, f"vpmm plot: {other}: line 1 is none\n"))
        self.assert_refused(self.run_part(self.stand_in("exit 1\n"), other, "-o", self.folder / "out.svg"), 1, "other.csv")
        self.assert_refused(self.run_part("/nowhere", other, "-o", self.folder / "out.svg"), 1, "/nowhere")
        self.assertFalse((self.folder / "out.svg").exists())


class Replays(plotted.Case):
    """Of which `vpmm replay --json` tells memory over time."""

    def write(self, name, *replays):
        path = self.folder / name
        path.write_text(json.dumps({"trace": "x", "replays": list(replays)}))
        return path

    def test_one_and_several(self):
        pool = {"through": "pool", "over_time": [[0, 10 * MIB, 12 * MIB], [5000, 100 * MIB, 110 * MIB], [9000, 0, 110 * MIB]]}
        bare = {"through": "cudaMallocAsync", "over_time": [[0, 10 * MIB, 32 * MIB], [7000, 100 * MIB, 200 * MIB]]}
        one = self.write("one.json", pool)
        self.assertLessEqual({"live, at most 100 MiB", "held, at most 110 MiB", "replay of 9 µs"},
                             set(texts(self.plot("one.svg", one))))
        found = texts(self.plot("two.svg", f"{self.write('two.json', pool, bare)}:same", self.trace))
        self.assertLessEqual({"same: pool", "same: cudaMallocAsync", "200 MiB held (2.00×)",
                              "128 MiB held (1.14×)", "small: addresses"}, set(found))
        self.assertNotIn("same: pool: addresses", found)
        self.plot("one.html", one)

    def test_malformed_ones(self):
        for content in ("{", "{}", '{"replays": []}', '{"replays": [4]}', '{"replays": [{"over_time": []}]}', "{" * 100_000,
                        '{"replays": [{"over_time": [[1, 2]]}]}', '{"replays": [{"over_time": [[1, 2, "x"]]}]}',
                        '{"replays": [{"over_time": [[2, 2, 2], [1, 2, 2]]}]}', '{"replays": [{"over_time": [[1, -2, 2]]}]}',
                        '{"replays": [{"over_time": [[1, 2, 1e999]]}]}', '{"replays": [{"over_time": [[[1], 2, 3]]}]}',
                        '{"replays": [{"over_time": [[1, 2, %s]]}]}' % ("9" * 400), '{"\udcff"'):
            with self.subTest(content[:60]):
                path = self.folder / "bad.json"
                path.write_bytes(content.encode("utf-8", "surrogateescape"))
                self.assert_refused(self.run_plot(path, "-o", self.folder / "x.svg"), 2, "bad.json")


class Refusals(plotted.Case):
    def test_bad_arguments(self):
        out = ["-o", self.folder / "x.svg"]
        for words, said in (
                ([], "FILE"), ([self.trace], "-o"), ([self.trace, "-o", "x.gif"], ".svg, .png or .html"),
                ([self.trace, *out, "--kind", "pie"], "memory"), ([self.trace, *out, "--colour", "x"], "stream"),
                ([self.trace, *out, "--from", "-3"], "--from"), ([self.trace, *out, "--to", "soon"], "soon"),
                ([self.trace, *out, "--from", "2", "--to", "1"], "--to"), ([self.trace, *out, "--width", "5"], "200"),
                ([self.trace, *out, "--dpi", "9" * 30], "600"), ([self.trace, *out, "--device", "x"], "255"),
                ([self.trace, *out, "--nothing"], "--nothing"), ([self.trace, "-o"], "-o"),
                ([self.trace, *out, "--kind", "compare"], "two"), ([self.trace] * 9 + out, "at most 8"),
                ([self.trace, *out, "--blocks", "0"], "1")):
            with self.subTest(words[1:]):
                result = self.run_plot(*words)
                self.assert_refused(result, 2, said)
                self.assertEqual(result.stderr.splitlines()[1:], ["See 'vpmm help plot'."])

    def test_what_cannot_be_had(self):
        empty = native.write(self.folder / "empty.vpmm")
        silent = native.write(self.folder / "silent.vpmm", [native.entry(native.HOST_WAIT, 5)])
        for words, status, said in (
                ([self.folder / "none", "-o", self.folder / "x.svg"], 2, "No such file"),
                ([self.folder, "-o", self.folder / "x.svg"], 2, "directory"),
                ([self.trace, "-o", self.folder / "no/x.svg"], 1, "cannot be written"),
                ([self.trace, "-o", self.folder / "x.svg", "--from", "20"], 2, "nothing in the time"),
                ([empty, "-o", self.folder / "x.svg"], 1, "no entries"),
                ([silent, "-o", self.folder / "x.svg", "--kind", "map"], 1, "nothing"),
                ([self.trace, "-o", self.folder / "x.png", "--height", "200", "--dpi", "300"], 1, "too few")):
            with self.subTest(said):
                self.assert_refused(self.run_plot(*words), status, said)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["empty.vpmm", "silent.vpmm", "small.vpmm"])

    def test_what_is_not_installed(self):
        out = ["-o", self.folder / "x.png"]
        self.assert_refused(self.run_plot(self.trace, *out, env={"PATH": str(self.folder)}), 1, "python3")
        for missing, words in (("matplotlib", out), ("numpy", ["-o", self.folder / "x.html"])):
            fake = self.folder / missing
            fake.mkdir()
            (fake / "__init__.py").write_text(f"raise ImportError('no {missing} here')\n")
            environment = {**os.environ, "PYTHONPATH": str(self.folder)}
            self.assert_refused(self.run_plot(self.trace, *words, env=environment), 1, f"pip install {missing}")
            if missing == "matplotlib":
                self.started("page.html", self.trace, env=environment)


class Hostile(plotted.Case):
    def test_malformed_traces(self):
        whole = self.trace.read_bytes()
        first = native.HEADER_BYTES + native.CHUNK_HEAD_BYTES
        for name, content in (
                ("nothing", b""), ("header", whole[:100]), ("tail", whole[:native.HEADER_BYTES + 20]),
                ("entries", whole[:first + 45]), ("version", native.header(version=9)),
                ("sizes", native.header(entry_bytes=48)), ("chunk", whole[:native.HEADER_BYTES] + b"x" * 20000),
                ("many", native.header(n_chunks=1 << 60) + whole[native.HEADER_BYTES:]),
                ("count", whole[:native.HEADER_BYTES + 4] + b"\xff\xff" + whole[native.HEADER_BYTES + 6:]),
                ("kind", whole[:first + 12] + b"\xee" + whole[first + 13:]),
                ("time", whole[:first] + b"\xff" * 8 + whole[first + 8:]),
                ("bytes", whole[:first + 24] + b"\xff" * 8 + whole[first + 32:])):
            with self.subTest(name):
                path = self.folder / name
                path.write_bytes(content)
                result = self.run_plot(path, "-o", self.folder / "x.svg")
                if name != "nothing":
                    self.assertEqual(len(result.stderr.splitlines()), 1)
                    self.assert_refused(result, 2, str(path))
                self.assertNotEqual(result.returncode, 0)
                self.assertNotIn("Traceback", result.stderr)

    def test_a_chunk_that_was_not_begun(self):
        self.trace.write_bytes(self.trace.read_bytes() + bytes(native.CHUNK_BYTES))
        data = bytearray(self.trace.read_bytes())
        struct.pack_into("<Q", data, 48, 3)
        self.trace.write_bytes(data)
        self.assertIn("live, at most 112 MiB", texts(self.plot("x.svg", self.trace, "--kind", "memory")))

    def test_names_that_others_chose(self):
        trace = native.write(self.folder / "odd.vpmm", *plotted.threads(), program=b"\x1b[31m$\\frac<&>\xff")
        said = " ".join(texts(self.plot("odd.svg", trace, "--title", "$\\sum")))
        self.assertIn("?[31m$\\frac<&>", said)
        self.assertIn("$\\sum", said)

    def test_damaged_traces(self):
        """In this process, which no damage may make stumble: a picture, or a Failure."""
        import failures
        import figure
        import page
        import options
        import traces
        import view
        whole, drawn = self.trace.read_bytes(), 0
        chosen = options.parse(["x", "-o", "x.html"])
        generator = random.Random(7)
        for number in range(160):
            data = bytearray(whole)
            for _ in range(generator.randrange(1, 6)):
                place = generator.randrange(native.HEADER_BYTES, native.HEADER_BYTES + 64 + 40 * 16)
                data[place] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)))
            path = pathlib.Path(self.folder / "damaged")
            path.write_bytes(data)
            try:
                one = view.view_of(traces.read(path, "damaged", pathlib.Path("/nowhere")), None, None, None)
                page.page([one], "damaged", "", chosen)
                if number % 10 == 0:
                    figure.draw(figure.Request(["memory", "map", "sizes"], "size", "t", "", False, 500, None, 50, False), [one])
                drawn += 1
            except failures.Failure:
                pass
        self.assertGreater(drawn, 20)


if __name__ == "__main__":
    plotted.main()
