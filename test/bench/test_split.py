# SPDX-License-Identifier: MIT
"""Tests of the ten programs' two halves: the rule, what is replayed when, and what is said while nothing is recorded."""
import contextlib
import gzip
import hashlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import bench
import page
import recording
import sim
import split
import ten
import works
from records import Results

UNTOUCHED_PARTS = {"untouched", "untouched-all"}


class TheRule(unittest.TestCase):
    def test_names_in_the_order_of_their_hashes(self):
        self.assertEqual(len(set(split.NAMES)), 10)
        hashes = [hashlib.sha256(name.encode()).hexdigest() for name in (*split.TUNED, *split.UNTOUCHED)]
        self.assertEqual(hashes, sorted(hashlib.sha256(name.encode()).hexdigest() for name in split.NAMES))

    def test_no_name_changes_sides(self):
        """Whoever adds, drops or renames a program changes the split, and has to say so here."""
        self.assertEqual(split.TUNED, ("fft-codes", "sparse-solvers", "graph-networks", "fsdp-ranks", "adapters"))
        self.assertEqual(split.UNTOUCHED, ("serving", "many-streams", "query-engines", "gaussian-processes", "segmentation"))


class Recorded(unittest.TestCase):
    """A folder of traces with recordings of our choice."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for module in (works, sim):
            self.enterContext(mock.patch.object(module, "TRACES", self.folder))

    def record(self, *names):
        for name in names:
            path = self.folder / (split.recording_of(name) if name in split.NAMES else f"{name}.csv.gz")
            path.parent.mkdir(exist_ok=True)
            path.touch()

    def said(self, *arguments):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = bench.main(list(arguments))
        return code, out.getvalue(), errors.getvalue()

    def listed(self, *arguments):
        code, out, _ = self.said(*arguments, "--list")
        self.assertEqual(code, 0)
        return [line.split(":")[0] for line in out.splitlines()]


class WhatIsReplayed(Recorded):
    def test_untouched_traces_are_replayed_only_when_asked_for(self):
        self.record(*split.NAMES, "table")
        parts = {work.part for work in works.select([])}
        self.assertLessEqual({"traces", "tuned", "tuned-all"}, parts)
        self.assertFalse(UNTOUCHED_PARTS & parts)
        self.assertEqual([work.name for work in works.select(["traces"])], ["table"])
        self.assertEqual([work.name for work in works.select(["decay"])], ["table"])
        self.assertLessEqual(set(split.TUNED), set(sim.known()))
        self.assertFalse(set(split.UNTOUCHED) & set(sim.known()))

    def test_each_half_has_its_flag(self):
        for half, names in (("tuned", split.TUNED), ("untouched", split.UNTOUCHED)):
            wanted = [f"{part}/{name}" for part in (half, f"{half}-all") for name in names]
            self.assertEqual(self.listed("traces", f"--{half}"), wanted)
            self.assertEqual(self.listed(f"--{half}"), wanted)
            self.assertEqual(self.listed("events", "traces", f"--{half}")[-10:], wanted)
        self.assertEqual(len(self.listed("traces", "--tuned", "--untouched")), 20)

    def test_what_is_not_recorded_is_told_and_nothing_runs(self):
        self.record("serving")
        code, out, errors = self.said("traces", "--untouched")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(errors, "bench: not recorded yet: many-streams, query-engines, gaussian-processes, segmentation; on a "
                                 "GPU, scripts/bench record --all-new --out test/traces records all ten programs\n")
        self.assertNotIn("tuned", {work.part for work in works.select([])})
        self.assertEqual(works.unrecorded(works.select(["untouched/serving"])), [])


LINES = "A,aa,4194304,0,5,s\nA,bb,512,0,5,s\nF,aa,,0,9,s\n"


class Recording(Recorded):
    def test_all_ten_fit_in_eight_minutes(self):
        targets = [recording.TARGETS[name] for name in split.NAMES]
        self.assertLess(sum(target.limit_s for target in targets), 480)

    def recorded(self, *arguments, code=0):
        """The names that a command records, each of which writes LINES."""
        program = self.folder / "program"
        program.write_text(f'#!/bin/sh\nprintf "{LINES}" > "$RECORD"\n')
        program.chmod(0o755)
        fake = {name: recording.Target(name) for name in recording.TARGETS}
        with mock.patch.multiple(recording.made, recorder=lambda: Path(), programs=lambda sources: [],
                                 binary=lambda source: program, FOLDER=self.folder / "made"), \
                mock.patch.object(recording, "TARGETS", fake):
            found, out, errors = self.said("record", *arguments, "--out", str(self.folder / "out"))
        self.assertEqual((found, errors), (code, ""), out)
        return out

    def test_one_command_records_all_ten_each_in_its_place(self):
        out = self.recorded("--all-new", code=1)
        names = [line.split(":")[0] for line in out.splitlines() if not line.startswith(" ")]
        self.assertEqual(names, list(split.NAMES))
        found = {str(path.relative_to(self.folder / "out")) for path in (self.folder / "out").rglob("*.gz")}
        self.assertEqual(found, {*(f"tuned/{name}.csv.gz" for name in split.TUNED),
                                 *(f"untouched/{name}.csv.gz" for name in split.UNTOUCHED)})

    def test_small_requests_are_kept(self):
        self.recorded("many-streams", code=1)
        trace = gzip.decompress((self.folder / "out" / "untouched" / "many-streams.csv.gz").read_bytes()).decode()
        self.assertEqual([line.split(",")[2] for line in trace.splitlines() if line.startswith("A")], ["4194304", "512"])

    def test_a_recording_that_shows_nothing_is_told(self):
        out = self.recorded("many-streams", code=1)
        self.assertIn("  WRONG: 2 mallocs, not 2000 to 100000\n", out)
        self.assertNotIn("WRONG", self.recorded("pipeline"))
        good = {what: least for what, (least, _) in recording.BOUNDS.items()}
        self.assertEqual(recording.complaints(good, 0), [])
        for what, (_, most) in recording.BOUNDS.items():
            packed_bytes = most + 1 if what == "bytes packed" else 0
            self.assertEqual(recording.complaints({**good, what: most + 1}, packed_bytes),
                             [f"{most + 1} {what}, not {recording.BOUNDS[what][0]} to {most}"])


class Bars(unittest.TestCase):
    def test_the_page_shows_each_half_apart(self):
        text = page.markdown([], Results([]), [])
        sections = {section.split("\n")[0]: section for section in text.split("\n## ")[1:]}
        for heading, parts in page.BARS_OF.items():
            rows = [line.split(" | ")[0].strip("| ") for line in sections[heading].splitlines() if line.startswith("| ")][2:]
            self.assertEqual({row.split("/")[0] for row in rows} & {*ten.HALVES["tuned"], *ten.HALVES["untouched"]}, set(parts))

    def test_bars_of_every_trace(self):
        for work in ten.works():
            figures = {"async": {"cold_total": 100.0, "second_total": 99.0, "held_ratio": 1.2, "live_peak": 100.0}}
            pool = {"cold_total": 33.0, "second_total": 33.0, "held_ratio": 1.2, "held_peak": 105.0, "live_peak": 100.0}
            figures[work.bars[0].rival] = {**pool, **{f"{turn}_malloc_{share}": ns for turn in ("cold", "second")
                                                      for share, ns in (("p50", 250.0), ("p99", 3000.0))}}
            for bar in work.bars:
                limit = bar.limit(lambda rival, figure: figures[rival].get(figure))
                self.assertLessEqual(figures[bar.rival][bar.figure], limit, work.full_name)
                self.assertGreater(figures[bar.rival][bar.figure] * 2, limit, work.full_name)

    def test_small_requests_are_replayed_where_all_are_judged(self):
        for work in ten.works():
            self.assertEqual(work.arguments, ("1",) if work.part.endswith("-all") else ())
            self.assertIn("pool", work.rivals)


if __name__ == "__main__":
    unittest.main()
