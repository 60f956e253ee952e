# SPDX-License-Identifier: MIT
"""`vpmm trace summary`: its figures, and its answers to what is wrong."""
import gzip
import json
import os
import re
import resource
import signal
import subprocess

import native_trace as native
from tracing import NAMES, TRACES, Case, arguments, main, run

GIB, MIB = 1 << 30, 1 << 20


def expected_of(name):
    """What the page of the traces says of requests of 2 MiB and more: mallocs, the live peak."""
    row = re.search(rf"^\| `{name}` \|.*$", (TRACES / "README.md").read_text(), re.MULTILINE).group()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    return int(cells[2].replace(",", "")), cells[5]


class Figures(Case):
    def summary(self, path, *words):
        return json.loads(self.succeed("summary", path, "--json", *words))

    def test_totals_are_those_of_the_page(self):
        for name in NAMES:
            with self.subTest(name=name):
                mallocs, peak = expected_of(name)
                found = self.summary(self.convert(TRACES / f"{name}.csv.gz", f"{name}.csv", "--min-size", "2M"))
                self.assertEqual(found["mallocs"], mallocs)
                self.assertEqual(f"{found['live_peak']['bytes'] / 1e9:.1f} GB", peak)

    def test_the_name_of_a_file_is_in_its_letters(self):
        path = self.convert(TRACES / f"{NAMES[0]}.csv.gz", "größe 目.csv", "--min-size", "512M")
        self.assertEqual(self.summary(path)["file"], str(path))

    def test_counts_are_those_of_the_lines(self):
        for name in NAMES:
            lines = gzip.decompress((TRACES / f"{name}.csv.gz").read_bytes()).decode().splitlines()
            found = self.summary(TRACES / f"{name}.csv.gz")
            count = {letter: sum(line.startswith(letter + ",") for line in lines) for letter in "AFKEW"}
            self.assertEqual([found["mallocs"], found["frees"], found["kernels"], found["events"]],
                             [count["A"], count["F"], count["K"], count["E"] + count["W"]], name)
            self.assertEqual(found["at_end"]["blocks"], count["A"] - count["F"])
            self.assertEqual(found["at_peak"]["bytes"], found["live_peak"]["bytes"])
            self.assertEqual(found["at_peak"]["blocks"], found["live_peak"]["blocks"])
            self.assertEqual(sum(size["blocks"] for size in found["sizes"]), count["A"])
            self.assertEqual(sum(life["blocks"] for life in found["lifetimes"]), count["F"])

    def test_a_trace_of_the_library(self):
        """Two threads and two devices; memory grows, is freed, and given back."""
        first = [native.entry(native.GROW, 1, 0x1000000, 4 * MIB),
                 native.entry(native.MALLOC, 0.5, 0x1000000, 3 * MIB, stream=5, path=native.BY_GROW, duration_ns=2000),
                 native.entry(native.FREE, 10, 0x1000000, 3 * MIB, stream=5, path=native.POOL, duration_ns=90),
                 native.entry(native.MALLOC, 20, 0x1000000, 4 * MIB, path=native.FIT, duration_ns=100),
                 native.entry(native.HOST_WAIT, 30, duration_ns=700),
                 native.entry(native.MALLOC, 40, 0, 9 * GIB, flags=native.IS_FAILED, path=native.CUDA + 13)]
        second = [native.entry(native.MALLOC, 5, 0x9000000, 100, path=native.CUDA + 1, device=1, duration_ns=5000),
                  native.entry(native.FREE, 50, 0x7770000, path=native.CUDA), native.entry(native.FREE, 55, 0, path=native.CUDA),
                  native.entry(native.GROW, 60, 0xa000000, 2 * MIB, device=1),
                  native.entry(native.UNMAP, 70, 0xa000000, 2 * MIB, device=1),
                  native.entry(native.RELEASE, 70, 0xa000000, 2 * MIB, device=1)]
        path = native.write(self.folder / "x.vpmm", first, second, dropped=3, program=b'pro"gram')
        found = self.summary(path)
        self.assertEqual([found[key] for key in ("mallocs", "frees", "failed", "dropped", "frees_unknown", "program", "pid")],
                         [4, 3, 1, 3, 1, 'pro"gram', 4711])
        self.assertEqual(found["live_peak"], {"bytes": 4 * MIB + 100, "at_ns": 20100, "blocks": 2})
        self.assertEqual(found["held_peak"]["bytes"], 6 * MIB)
        self.assertEqual([(device["device"], device["held_peak"]["bytes"]) for device in found["devices"]],
                         [(0, 4 * MIB), (1, 2 * MIB)])
        self.assertEqual([(path["text"], path["mallocs"]) for path in found["paths"]],
                         [("fit", 1), ("grow", 1), ("CUDA: smaller than the threshold", 1), ("CUDA: out of memory", 1)])
        self.assertEqual([(call["call"], call["duration_ns"], call["thread"]) for call in found["slowest"]],
                         [("cudaMalloc", 5000, 4712), ("cudaMalloc", 2000, 4711), ("cudaMalloc", 100, 4711),
                          ("cudaFree", 90, 4711)])
        self.assertEqual([found["host_waits"]["calls"], found["host_waits"]["max_ns"]], [1, 700])
        self.assertEqual(found["pool"]["release"], {"times": 1, "bytes": 2 * MIB})
        self.assertEqual({thread["thread"]: thread["bytes"] for thread in found["at_peak"]["threads"]},
                         {4711: 4 * MIB, 4712: 100})
        self.assertEqual([found["at_end"]["blocks"], found["at_end"]["bytes"]], [2, 4 * MIB + 100])
        self.assertEqual(max(span["unused_bytes"] for span in found["over_time"]), 4 * MIB)
        alone = self.summary(path, "--device", "1")
        self.assertEqual([alone["mallocs"], alone["live_peak"]["bytes"], alone["at_peak"]["bytes"]], [1, 100, 100])

    def test_people_get_the_same(self):
        text = self.succeed("summary", TRACES / "pipeline.csv.gz").decode()
        self.assertIn("4515 mallocs and 4515 frees from ", text)
        self.assertRegex(text, r"live +444\.68 MiB  at 22\.73 ms, with 3 blocks live")
        for title in ("Peaks", "Live at the peak: 3 blocks", "Over time", "Sizes", "Lifetimes", "Still live at the end: 0 blocks"):
            self.assertIn(f"\n{title}", text)

    def test_a_pipe_and_a_file_give_the_same(self):
        data = (TRACES / "jax.csv.gz").read_bytes()
        piped = json.loads(self.succeed("summary", "-", "--json", data=data))
        self.assertEqual(dict(piped, file=""), dict(self.summary(TRACES / "jax.csv.gz"), file=""))

    def test_a_compressed_snapshot(self):
        plain = self.convert(TRACES / "jax.csv.gz", "x.pickle")
        packed = self.folder / "x.pickle.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        wanted = dict(self.summary(plain), file="")
        self.assertEqual(dict(self.summary(packed), file=""), wanted)
        piped = json.loads(self.succeed("summary", "-", "--json", data=packed.read_bytes()))
        self.assertEqual(dict(piped, file=""), wanted)
        packed.write_bytes(packed.read_bytes()[:-2000])
        self.assertIn("not a snapshot of PyTorch", self.refuse("summary", packed))

    def test_a_trace_without_entries(self):
        found = self.summary(native.write(self.folder / "x.vpmm"))
        self.assertEqual([found["mallocs"], found["live_peak"]["bytes"], found["over_time"]], [0, 0, []])


class Refusals(Case):
    def test_help(self):
        for words in (["--help"], ["summary", "-h"], ["convert", "x", "--help"]):
            self.assertTrue(self.succeed(*words).startswith(b"usage: vpmm trace summary FILE"))

    def stopped_half_way(self, path, made):
        """A conversion that stands still before what it makes is whole. Where it was faster, another one is begun."""
        while True:
            process = subprocess.Popen([arguments.program, "trace", "convert", path, "-o", made])
            while process.poll() is None and not any(made.parent.iterdir()):
                pass
            process.send_signal(signal.SIGSTOP)
            if process.returncode is None:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if process.poll() is None and not made.exists():
                return process
            process.send_signal(signal.SIGCONT)
            self.assertEqual(process.wait(), 0)
            made.unlink()

    def test_what_is_interrupted_leaves_nothing(self):
        path, out = self.folder / "long.csv", self.folder / "out"
        path.write_text("".join(f"A,{0x1000 + 0x1000 * i:x},4096,0,{i},a\n" for i in range(200000)))
        out.mkdir()
        process = self.stopped_half_way(path, out / "long.json.gz")
        self.assertEqual(len(list(out.iterdir())), 1)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(), -signal.SIGINT)
        self.assertEqual(list(out.iterdir()), [])

    def test_a_limit_on_files_is_told_and_leaves_nothing(self):
        path, out = self.folder / "long.csv", self.folder / "out"
        path.write_text("".join(f"A,{0x1000 + 0x1000 * i:x},4096,0,{i},a\n" for i in range(50000)))
        out.mkdir()
        process = subprocess.run([arguments.program, "trace", "convert", path, "-o", out / "long.csv"], stderr=subprocess.PIPE,
                                 check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        self.assertEqual((process.returncode, list(out.iterdir())), (1, []))
        self.assertRegex(process.stderr, rb"\Avpmm trace: .*long.csv: File too large\n\Z")

    def test_a_limit_on_files_is_told_of_every_file(self):
        """Of the copy of what a pipe gives, and of standard output."""
        data = "".join(f"A,{0x1000 + 0x1000 * i:x},4096,0,{i},a\n" for i in range(50000)).encode()
        plain = self.folder / "long.csv"
        plain.write_bytes(data)
        for words in (["trace", "summary", "-"], ["replay", "-"], ["trace", "convert", plain, "-o", "-", "--to", "csv"]):
            with self.subTest(words), open(self.folder / "out", "wb") as out:
                process = subprocess.run([arguments.program, *words], input=data, stdout=out, stderr=subprocess.PIPE, check=False,
                                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
                self.assertIn(process.returncode, (1, 2))
                self.assertRegex(process.stderr, rb"\Avpmm \w+: standard (in|out)put: File too large\n\Z")

    def test_without_a_temporary_folder_there_is_another(self):
        process = subprocess.run([arguments.program, "trace", "convert", "-", "-o", "-", "--to", "vpmm"], input=b"A,40,4096,0,5,a\n",
                                 stdout=subprocess.PIPE, check=False, env={**os.environ, "TMPDIR": "/nowhere"})
        self.assertEqual((process.returncode, process.stdout[:8]), (0, b"VPMMTRC\n"))

    def test_device_that_is_not_there(self):
        trace = TRACES / "jax.csv.gz"
        self.assertIn("no requests of device 5", self.refuse("summary", trace, "--device", "5", status=1))
        self.assertIn("nothing of device 5", self.refuse("convert", trace, "-o", self.folder / "x.csv", "--device", "5", status=1))

    def test_arguments(self):
        trace = TRACES / "jax.csv.gz"
        for words, part in (([], "what is to be done"), (["show"], "'show' is neither"), (["summary"], "needs a FILE"),
                            (["summary", trace, "b"], "also 'b'"), (["summary", ""], "FILE is empty"), (["summary", "--jsn", trace], "no option --jsn"),
                            (["summary", trace, "--device"], "--device needs a value"),
                            (["summary", trace, "--device", "256"], "--device '256' is not accepted: it takes a number from 0 to 255"),
                            (["summary", trace, "--from", "tar"], "--from 'tar' is not accepted: it takes vpmm, csv, rmm or snapshot"),
                            (["summary", trace, "--from", "chrome"], "--from 'chrome' is not accepted"),
                            (["convert", trace], "needs -o OUT"), (["convert", "-o", "x.csv"], "needs a FILE"),
                            (["convert", trace, "-o", "x.txt"], "tells no form: --to vpmm, csv"),
                            (["convert", trace, "-o", "x.csv", "--min-size", "much"], "--min-size 'much' is not accepted: it takes a number of bytes"),
                            (["convert", trace, "-o", "x.csv", "--to", "xml"], "--to 'xml' is not accepted: it takes vpmm, csv, rmm, snapshot or chrome")):
            with self.subTest(words=words):
                self.assertIn(part, self.refuse(*words))

    def test_files(self):
        cut = self.folder / "cut.csv.gz"
        cut.write_bytes((TRACES / "jax.csv.gz").read_bytes()[:5000])
        for path, part in ((self.folder / "none.csv", "No such file"), (self.folder, "Is a directory"),
                           (cut, "the compressed data ends too early"), (TRACES / "README.md", "line 3: it begins with none of")):
            with self.subTest(path=path):
                line = self.refuse("summary", path)
                self.assertIn(part, line)
                self.assertTrue(line.startswith(f"{path}: "), line)
        self.assertIn("what is read is a trace of this library, CSV", self.refuse("summary", "-", data=b""))
        self.assertIn("none of the forms that are read", self.refuse("summary", "-", data=b"\x7fELF" * 100))

    def endless_trace(self):
        """A pipe with the first word of a trace and nothing behind it, for ever."""
        path = self.folder / "pipe"
        os.mkfifo(path)
        writer = subprocess.Popen(["sh", "-c", '{ printf "VPMMTRC\\n"; exec cat /dev/zero; } >"$0"', path])
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        return path

    def test_what_has_no_end_is_refused_by_its_beginning(self):
        limit = (1 << 24, 1 << 24)
        for words, said in ((["summary", "-"], "none of the forms"), (["summary", "-", "--from", "csv"], "line 1: "),
                            (["summary", "-", "--from", "snapshot"], "not a snapshot"),
                            (["summary", "-", "--from", "rmm"], "line 1: "),
                            (["convert", "-", "-o", self.folder / "x.csv"], "none of the forms"),
                            (["summary", "/dev/zero"], "none of the forms"),
                            (["summary", self.endless_trace()], "its layout is version 0")):
            with self.subTest(words=words), subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
                done = subprocess.run([arguments.program, "trace", *words], stdin=endless.stdout, capture_output=True,
                                      text=True, check=False, timeout=120,
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
                endless.kill()
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_pipe_whose_lines_look_like_no_form_at_first(self):
        lines = "\nThread,Time,Action,Pointer,Size,Stream\n" + "".join(
            f"1,10:00:00.{i % 1000000:06},allocate,{i + 1:#x}000,64,0\n" for i in range(9000))
        found = json.loads(run("summary", "-", "--json", "--from", "rmm", data=lines.encode()).stdout)
        self.assertEqual(found["mallocs"], 9000)

    def test_every_cut_of_a_trace_is_told_or_whole(self):
        entries = [native.entry(native.MALLOC, number, 4096 * (number + 1), 64) for number in range(500)]
        whole = native.write(self.folder / "x.vpmm", entries[:250], entries[250:]).read_bytes()
        for length in range(0, len(whole), 997):
            done = run("summary", "-", "--json", data=whole[:length])
            self.assertEqual(done.returncode == 0, done.stdout != b"")
            self.assertEqual(done.returncode == 0, done.stderr == b"")
            self.assertIn(done.returncode, (0, 2))
            self.assertLessEqual(done.stderr.count(b"\n"), 1)

    def test_a_file_that_cannot_be_made(self):
        trace = TRACES / "jax.csv.gz"
        self.assertIn("No such file", self.refuse("convert", trace, "-o", "/nowhere/x.csv", status=1))
        self.assertIn("No space left", self.refuse("convert", trace, "-o", "/dev/full", "--to", "csv", status=1))

    def test_what_was_there_stays_where_a_trace_is_damaged(self):
        kept = self.folder / "x.csv"
        kept.write_text("before")
        bad = self.folder / "bad.csv"
        bad.write_text("A,10,5,0,1,a\nF,20,,0,2,a\n")
        self.assertIn("line 2: the address is freed while it is not allocated", self.refuse("convert", bad, "-o", kept))
        self.assertEqual(kept.read_text(), "before")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bad.csv", "x.csv"])


if __name__ == "__main__":
    main()
