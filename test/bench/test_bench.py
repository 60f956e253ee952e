# SPDX-License-Identifier: MIT
"""Tests of what runs the benchmarks: results, bars, tables, watcher and runner; with programs that need no GPU."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import bench
import held
import made
import page
import rawtrace
import records
import recording
import session
import ten
import works
from records import GOOD, Record, Results, Session
from works import Bar, Limit, Work

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SESSION = Session("2026-01-02", "abc", "6.1", "580", "a GPU", "scripts/bench")


class InFolder(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = Path(kept.name)


def figures(work="p/w", figure="f", unit="ns", **by_rival):
    return [Record(work, rival, number, GOOD, figure, value, unit)
            for rival, values in by_rival.items() for number, value in enumerate(values, 1)]


class KeepingResults(InFolder):
    def test_what_is_written_is_read(self):
        path = self.folder / "r.csv"
        wanted = [*figures(a=[1.5, 2e9]), Record("p/w", "a", 3, "ends with 1: a, comma")]
        records.append(path, SESSION, wanted[:1])
        records.append(path, SESSION, wanted[1:])
        self.assertEqual(records.read([path]), ([SESSION], wanted))
        self.assertEqual(path.read_text().splitlines()[0],
                         "date,commit,kernel,driver,gpu,command,work,rival,run,status,figure,value,unit")

    def test_what_passed_through_before_small_requests_were_served(self):
        path = self.folder / "r.csv"
        records.append(path, SESSION, [*figures("small/cudaMalloc, 1 KiB", **{"pool-malloc": [1], "bypass": [2]}),
                                       *figures(pool=[3]), *figures("p/all", small=[4])])
        self.assertEqual([record.rival for record in records.read([path])[1]], ["bypass-malloc", "bypass", "pool", "pool"])

    def test_a_last_line_cut_short_is_passed_over_and_no_other(self):
        path = self.folder / "r.csv"
        records.append(path, SESSION, figures(a=[1, 2]))
        text = path.read_text()
        path.write_text(text[:-9])
        self.assertEqual(len(records.read([path])[1]), 1)
        path.write_text(text.replace(",1,ok", ",one,ok"))
        with self.assertRaises(ValueError):
            records.read([path])
        path.write_text("a,b\n")
        with self.assertRaises(ValueError):
            records.read([path])

    def test_medians_leave_failed_runs_out(self):
        kept = Results([*figures(a=[5, 1, 3]), *figures(b=[1, 2]), Record("p/w", "a", 4, "bad")])
        self.assertEqual(kept.median("p/w", "a", "f"), 3)
        self.assertEqual(kept.median("p/w", "b", "f"), 1.5)
        self.assertIsNone(kept.median("p/w", "c", "f"))
        self.assertEqual((kept.runs("p/w", "a"), kept.failures()), (3, ["p/w, a, run 4: bad"]))

    def test_a_run_that_was_made_again_counts_once(self):
        kept = Results([Record("p/w", "a", 1, "bad"), *figures(a=[7])])
        self.assertEqual((kept.failures(), kept.values("p/w", "a", "f")), ([], [7]))
        self.assertTrue(kept.is_done("p/w", "a", 1))
        self.assertFalse(kept.is_done("p/w", "a", 2))


class Judging(unittest.TestCase):
    def met(self, bar, **by_rival):
        return page.is_met(bar, Work("p", "w", "s", tuple(by_rival)), Results(figures(**by_rival)))

    def test_a_share_of_a_rival(self):
        bar = Bar("pool", "f", "", (Limit(1 / 4, "async"),))
        self.assertIs(self.met(bar, pool=[25], **{"async": [100]}), True)
        self.assertIs(self.met(bar, pool=[26], **{"async": [100]}), False)
        self.assertIsNone(self.met(bar, pool=[1]))
        self.assertIsNone(self.met(bar, **{"async": [1]}))

    def test_the_larger_of_two_limits(self):
        bar = Bar("pool", "f", "", (Limit(2, "malloc"), Limit(1 / 4, "async")))
        rivals = {"malloc": [10], "async": [200]}
        self.assertIs(self.met(bar, pool=[50], **rivals), True)
        self.assertIs(self.met(bar, pool=[51], **rivals), False)
        self.assertIs(self.met(bar, pool=[20], malloc=[10], **{"async": [4]}), True)
        self.assertIsNone(self.met(bar, pool=[1], malloc=[10]))

    def test_an_absolute_limit_and_one_above_another_figure(self):
        self.assertIs(self.met(Bar("pool", "f", "", (Limit(more=10),)), pool=[10]), True)
        self.assertIs(self.met(Bar("pool", "f", "", (Limit(more=10),)), pool=[10.5]), False)
        bar = Bar("pool", "f", "", (Limit(1, "pool", "g", 0.01),))
        kept = Results([*figures(pool=[1.02]), *figures(figure="g", pool=[1.011])])
        self.assertIs(page.is_met(bar, Work("p", "w", "s", ("pool",)), kept), True)

    def test_quantities(self):
        self.assertEqual([page.quantity(value, "ns") for value in (31.24, 512.3, 51000, 5e7, 2.5e9)],
                         ["31.24 ns", "512.3 ns", "51 us", "50 ms", "2.500 s"])
        self.assertEqual(page.quantity(64 * 2**30, "bytes"), "64 GiB")
        self.assertEqual(page.quantity(4447.0, "calls"), "4447 calls")
        self.assertEqual(page.quantity(None, "ns"), "")
        self.assertEqual([page.ratio_text(*pair) for pair in ((1, 4), (1, 150), (3, 2), (1, None))],
                         ["0.250", "1/150.0", "1.500", ""])


class Catalogue(unittest.TestCase):
    def test_every_source_is_there_and_every_name_is_used_once(self):
        everything = works.works()
        names = [work.full_name for work in everything]
        self.assertEqual(len(names), len(set(names)))
        for work in everything:
            self.assertTrue(made.source_of(work).exists(), work.full_name)
        for target in recording.TARGETS.values():
            folder, suffix = ("python", "py") if target.is_python else ("programs", "cu")
            self.assertTrue((HERE / folder / f"{target.source}.{suffix}").exists(), target.source)

    def test_every_bar_is_of_rivals_that_run(self):
        for work in works.works():
            self.assertTrue(work.bars, work.full_name)
            for bar in work.bars:
                wanted = {bar.rival, *(limit.rival for limit in bar.limits if limit.rival)}
                self.assertLessEqual(wanted, set(work.rivals), work.full_name)
                self.assertTrue(works.RIVALS[bar.rival].preloaded, work.full_name)
            self.assertLessEqual(set(work.rivals), set(works.RIVALS))

    def test_no_folder_is_shared_by_two_runs(self):
        folders = {session.folder_of(work, works.RIVALS[name]) for work in works.works() for name in work.rivals}
        self.assertEqual(len(folders), sum(len(work.rivals) for work in works.works()))

    def test_select(self):
        self.assertEqual({work.part for work in works.select(["pairs", "growth"])}, {"pairs", "growth"})
        self.assertEqual([work.name for work in works.select(["growth/8"])], ["8 GiB"])
        self.assertEqual({work.part for work in works.works()} - {work.part for work in works.select([])} -
                         set(ten.HALVES["tuned"]), set(ten.HALVES["untouched"]))
        with self.assertRaises(ValueError):
            works.select(["pairs", "nothing"])

    def test_every_trace_is_a_work_under_its_name(self):
        self.assertEqual(sorted(work.trace for work in works.traces()),
                         sorted(path.name for path in works.TRACES.glob("*.csv.gz")))
        self.assertGreaterEqual(len(works.traces()), 9)


class Environments(unittest.TestCase):
    def test_only_the_preloaded_rival_is_preloaded_and_nothing_of_ours_leaks_in(self):
        given = {"LD_PRELOAD": "/other.so", "VPMM_DISABLE": "1", "PYTORCH_ALLOC_CONF": "x", "KEPT": "1"}
        with replaced(os, "environ", given):
            bare = session.environment(works.RIVALS["async"], Path("/l.so"), Path("/f"))
            page_by_page = session.environment(works.RIVALS["page"], Path("/l.so"), Path("/f"))
        self.assertEqual(bare, {"KEPT": "1"})
        self.assertEqual(page_by_page, {"KEPT": "1", "VPMM_EXTENT": "1", "LD_PRELOAD": "/l.so",
                                        "VPMM_STATS": "/f/stats.%p.json"})

    def test_printed_figures(self):
        self.assertEqual(session.printed("@held\na,1.5,ns\nb,x,ns\nc,2\nd,3,\n# e,4,ns\n"), {"a": (1.5, "ns"), "d": (3, "")})

    def test_ratios_of_a_run(self):
        found = session.with_ratios({"live_peak": (100, "bytes"), "held_peak": (110, "bytes"),
                                     "live_peak_rounded": (101, "bytes")})
        self.assertEqual((found["held_ratio"], found["rounding"]), ((1.1, ""), (1.01, "")))
        self.assertNotIn("held_ratio", session.with_ratios({"held_peak": (1, "bytes")}))


FAKE_NVML = """
#include <stdio.h>
#include <stdlib.h>
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = 0; return index == 3 ? 0 : 6; }
int nvmlDeviceGetHandleByUUID(const char *name, void **handle) { *handle = 0; return *name == 'G' ? 0 : 6; }
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory)
{
    FILE *file = fopen(getenv("FAKE_USED"), "r");
    int n = file ? fscanf(file, "%llu", &memory->used) : 0;
    if (file) fclose(file);
    (void)handle;
    return n == 1 ? 0 : 999;
}
"""


class Watching(InFolder):
    def setUp(self):
        super().setUp()
        self.shared_library = self.folder / "libnvml.so"
        (self.folder / "nvml.c").write_text(FAKE_NVML)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(self.shared_library), str(self.folder / "nvml.c")], check=True)
        self.used = self.folder / "used"
        self.use(100)
        os.environ["FAKE_USED"] = str(self.used)

    def use(self, n_bytes):
        (self.folder / "new").write_text(str(n_bytes))
        os.replace(self.folder / "new", self.used)

    def watch(self, device="3"):
        watch = held.Watch(str(self.shared_library), device)
        self.addCleanup(watch.close)
        return watch

    def test_the_peak_is_seen_between_two_questions_and_forgotten_after(self):
        watch = self.watch()
        run = held.Held(watch)
        self.assertEqual(run.idle_bytes, 100)
        self.use(900)
        self.assertEqual(run.look(), 800)
        self.use(300)
        self.assertEqual(run.look(), 200)
        self.assertEqual(run.peak_bytes(), 800)
        self.assertEqual(held.Held(watch).peak_bytes(), 0)

    def test_what_is_still_being_taken_back_is_waited_for(self):
        class Falling:
            answers = [(500, 500), (300, 500), (200, 300), (200, 200), (260, 260)]

            def ask(self):
                return self.answers.pop(0)

        run = held.Held(Falling())
        self.assertEqual((run.idle_bytes, run.peak_bytes()), (200, 60))

    def test_a_device_may_be_named_by_its_uuid(self):
        self.assertEqual(held.Held(self.watch("GPU-1")).idle_bytes, 100)

    def test_whoever_cannot_watch_says_why(self):
        for watch, text in ((self.watch("0"), "nvmlDeviceGetHandleByIndex_v2 answered 6"),
                            (held.Watch("libno-such-library.so", "3"), "libno-such-library.so")):
            self.addCleanup(watch.close)
            with self.assertRaises(held.Unwatched) as caught:
                watch.ask()
            self.assertIn(text, str(caught.exception))

    def test_a_watcher_that_dies_is_noticed(self):
        watch = self.watch()
        watch.ask()
        self.used.unlink()
        with self.assertRaises(held.Unwatched):
            watch.ask()
            watch.ask()


class Recordings(InFolder):
    def test_a_recording_is_cleaned(self):
        raw = ["A,aa,4096,7f01,1000,a", "K,7f02,1005,7", "E,dd,7f01,1010", "W,dd,7f02,1011", "F,bb,,0,1012,s",
               "F,aa,,7f02,1020,a", "F,aa,,7f02,1021,a", "A,aa,1,2,1030,s", "A,ab,1,1,1031,s"]
        self.assertEqual(list(rawtrace.clean(raw)), [
            "A,aa,4096,4,0,a", "K,5,5,7", "E,1,4,10", "W,1,5,11", "F,aa,,5,20,a", "A,aa,1,2,30,s", "A,ab,1,0,31,s"])
        with self.assertRaises(ValueError):
            list(rawtrace.clean(["M,start"]))

    def test_a_trace_is_counted(self):
        mib = 1 << 20
        lines = [f"A,a,{2 * mib},0,0,s", "A,b,4096,0,1,a", f"A,c,{3 * mib},4,2,a", "K,5,3,70", "F,a,,0,4,s", "F,b,,0,4,a",
                 f"A,a,{2 * mib},0,5,a", "E,1,4,6", "W,1,5,7"]
        self.assertEqual(rawtrace.counts_of(lines), {
            "mallocs": 4, "large": 3, "large by cudaMalloc": 1, "sizes": 2, "bytes at the peak": 5 * mib, "streams": 3,
            "works": 1, "us of work": 70, "records": 1, "waits": 1})

    def test_the_same_recording_gives_the_same_bytes(self):
        raw = self.folder / "raw"
        raw.write_text("A,aa,4096,0,5,s\n")
        self.assertEqual(rawtrace.pack(raw, self.folder / "a.gz")["mallocs"], 1)
        rawtrace.pack(raw, self.folder / "b.gz")
        self.assertEqual((self.folder / "a.gz").read_bytes(), (self.folder / "b.gz").read_bytes())


class Commands(InFolder):
    def bench(self, *arguments):
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        (self.folder / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        (self.folder / "nvidia-smi").chmod(0o755)
        return subprocess.run([sys.executable, "-B", str(HERE / "bench.py"), *arguments], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def test_without_a_gpu_it_says_so(self):
        done = self.bench("pairs")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("no GPU here", done.stderr)

    def test_wrong_names(self):
        for arguments in (["nothing"], ["record", "nothing"], ["table", "/no/such.csv"]):
            done = self.bench(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("bench: ", done.stderr)

    def test_the_list_names_every_work(self):
        done = self.bench("--list", *works.parts())
        self.assertEqual([line.split(": ")[0] for line in done.stdout.splitlines()],
                         [work.full_name for work in works.works()])

    def test_the_page_is_what_the_kept_results_say(self):
        with replaced(bench, "DOCS", self.folder), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(bench.write_table([]), 0)
        self.assertEqual((self.folder / "BENCHMARKS.md").read_text(), (ROOT / "docs" / "BENCHMARKS.md").read_text(),
                         "run scripts/bench table")


@contextlib.contextmanager
def replaced(owner, name, value):
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


if __name__ == "__main__":
    unittest.main()
