#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `vpmm plot` works out before it draws: who had which address when, levels, zombies, the axis of addresses, pixels."""
import json
import pathlib
import random

import native_trace as native
import plotted
from plotted import BASE, MIB


class Parts(plotted.Case):
    def view(self, *threads):
        import traces
        import view
        path = native.write(self.folder / "parts.vpmm", *threads)
        return view.view_of(traces.read(path, "parts", pathlib.Path("/nowhere")), None, None, None)

    def test_an_address_changes_hands_between_threads(self):
        """A request that began before the free whose address it got."""
        entry = native.entry
        shown = self.view(
            [entry(native.MALLOC, 0, BASE, 2 * MIB, 1, native.FIT), entry(native.FREE, 10, BASE, 2 * MIB, 1)],
            [entry(native.MALLOC, 9, BASE, 4 * MIB, 2, native.FIT, duration_ns=5000), entry(native.FREE, 20, BASE, 0, 2)])
        self.assertEqual([(one.start, one.end, one.bytes) for one in map(lambda i: shown.blocks.chosen(i), range(2))],
                         [(0, 10_000, 2 * MIB), (14_000, 20_000, 4 * MIB)])
        self.assertEqual(max(shown.memory.live.level), 4 * MIB)
        self.assertEqual(shown.memory.live.level[-1], 0)

    def test_threads_go_on_with_a_chunk(self):
        """And a trace of the first version, which had no such chunks."""
        import traces
        entry = native.entry
        entries = [entry(native.MALLOC, 1, BASE, 2 * MIB, 1), entry(native.THREAD, 2, 4712), entry(native.FREE, 3, BASE)]
        path = self.folder / "shared.vpmm"
        path.write_bytes(native.header() + native.chunk(entries, is_shared=1))
        self.assertEqual(list(traces.read_native(path, "shared").entries["kind"]), [native.MALLOC, native.FREE])
        path.write_bytes(native.header(version=1) + native.chunk(entries[::2]))
        self.assertEqual(list(traces.read_native(path, "shared").entries["kind"]), [native.MALLOC, native.FREE])

    def test_an_address_given_out_twice(self):
        """The free is missing: the first block ends there, and is not counted with the second one."""
        shown = self.view([native.entry(native.MALLOC, at, BASE, MIB << at, 1) for at in range(3)])
        self.assertEqual(list(shown.blocks.end)[:2], [1000, 2000])
        self.assertEqual((max(shown.memory.live.level), shown.memory.live.level[-1]), (4 * MIB, 4 * MIB))

    def test_held_is_put_right(self):
        """What was dropped is known again with the next figures."""
        entry = native.entry
        shown = self.view([entry(native.GROW, 1, BASE, 8 * MIB), entry(native.FIGURES, 2, 32 * MIB),
                           entry(native.RELEASE, 3, BASE, 2 * MIB), entry(native.FIGURES, 4, 40 * MIB)])
        self.assertEqual([shown.memory.held.at(us * 1000) // MIB for us in (0, 1, 2, 3, 4)], [0, 8, 32, 30, 40])

    def test_zombies(self):
        import spacemap
        entry = native.entry
        moved = [entry(native.GROW, 1, BASE, 30 * MIB), entry(native.GROW, 1, BASE + 60 * MIB, 8 * MIB),
                 entry(native.MALLOC, 2, BASE, 20 * MIB, 1, native.FIT),
                 entry(native.MALLOC, 3, BASE + 20 * MIB, 2 * MIB, 1, native.FIT), entry(native.FREE, 4, BASE),
                 entry(native.MALLOC, 5, BASE + 22 * MIB, 8 * MIB, 1, native.FIT),
                 entry(native.STITCH, 6, BASE + 30 * MIB, 20 * MIB), entry(native.GROW, 6, BASE + 50 * MIB, 2 * MIB),
                 entry(native.MALLOC, 6, BASE + 30 * MIB, 22 * MIB, 1, native.BY_STITCH)]
        for last, end in (([], float("inf")), ([entry(native.UNMAP, 8, BASE, 20 * MIB)], 8000)):
            zombies = spacemap.space_map(self.view(moved + last)).zombies
            self.assertEqual([tuple(map(float, row)) for row in zip(*zombies)], [(6000, end, BASE, 20 * MIB)])
        given_back = [entry(native.GROW, 1, BASE, 30 * MIB), entry(native.MALLOC, 2, BASE, 20 * MIB, 1, native.FIT),
                      entry(native.FREE, 3, BASE), entry(native.GROW, 4, BASE + 60 * MIB, 20 * MIB),
                      entry(native.STITCH, 6, BASE + 100 * MIB, 20 * MIB),
                      entry(native.MALLOC, 6, BASE + 100 * MIB, 20 * MIB, 1, native.BY_STITCH),
                      entry(native.UNMAP, 8, BASE, 20 * MIB), entry(native.RELEASE, 8, BASE, 20 * MIB)]
        zombies = spacemap.space_map(self.view(given_back)).zombies
        self.assertEqual([tuple(map(float, row)) for row in zip(*zombies)],
                         [(6000, float("inf"), BASE + 60 * MIB, 20 * MIB)])

    def test_the_move_that_made_a_place_is_not_the_one_that_left_it(self):
        """Nobody used the place in between."""
        import spacemap
        entry = native.entry
        zombies = spacemap.space_map(self.view([
            entry(native.GROW, 1, BASE, 12 * MIB), entry(native.GROW, 1, BASE + 20 * MIB, 8 * MIB),
            entry(native.STITCH, 6, BASE + 40 * MIB, 20 * MIB), entry(native.STITCH, 10, BASE + 80 * MIB, 20 * MIB),
            entry(native.UNMAP, 12, BASE + 40 * MIB, 20 * MIB)])).zombies
        self.assertEqual(sorted(tuple(map(float, row)) for row in zip(*zombies)),
                         [(6000, float("inf"), BASE, 12 * MIB), (6000, float("inf"), BASE + 20 * MIB, 8 * MIB),
                          (10_000, 12_000, BASE + 40 * MIB, 20 * MIB)])

    def test_thinning_keeps_extremes(self):
        import numpy
        import series
        generator = numpy.random.default_rng(3)
        steps = series.Steps(numpy.sort(generator.random(50_000)) * 1e9, generator.random(50_000))
        few = steps.thinned(100)
        self.assertLessEqual(few.when.size, 400)
        self.assertEqual((few.level.max(), few.level.min()), (steps.level.max(), steps.level.min()))
        self.assertTrue(set(zip(few.when, few.level)) <= set(zip(steps.when, steps.level)))
        part = steps.clipped(2.5e8, 5e8)
        self.assertEqual((part.when[0], part.level[0], part.when[-1]), (2.5e8, steps.at(2.5e8), 5e8))

    def test_pixels_hold_the_area(self):
        import numpy
        import raster
        generator = numpy.random.default_rng(5)
        left, low = generator.random(300) * 70, generator.random(300) * 30
        right, high = left + generator.random(300) * 9, low + generator.random(300) * 9
        pixels = raster.covered(left, right, low, high, numpy.ones(300), 80, 40)
        self.assertAlmostEqual(pixels.sum(), ((right - left) * (high - low)).sum(), places=6)
        exact = raster.covered(*(numpy.array([at]) for at in (1.5, 3.0, 1.0, 2.25)), numpy.ones(1), 4, 4)
        self.assertEqual([(row, column, value) for row, line in enumerate(exact.tolist())
                          for column, value in enumerate(line) if value],
                         [(1, 1, 0.5), (1, 2, 1.0), (2, 1, 0.125), (2, 2, 0.25)])

    def test_the_axis_of_addresses(self):
        import numpy
        import space
        address = numpy.array([0.0, 10, 5, 1000, 1010]) * MIB
        segments = space.segments_of(address, numpy.array([20.0, 10, 1, 10, 10]) * MIB)
        self.assertEqual([(one.address, one.bytes) for one in segments], [(0, 20 * MIB), (1000 * MIB, 20 * MIB)])
        places = space.placed(segments, address)
        self.assertEqual((places[0], segments[-1].end), (0, 1))
        self.assertLess(places[1], places[3])
        self.assertAlmostEqual(places[4] - places[3], places[1] - places[0])
        self.assertEqual(space.segments_of(address[:0], address[:0]), [])

    def test_mapped_parts(self):
        """Against a map of single pages."""
        import space
        import traces
        generator, entries, pages = random.Random(11), [], {}
        for us in range(300):
            kind = generator.choice((native.GROW, native.STITCH, native.UNMAP))
            begin, n = generator.randrange(60), generator.randrange(1, 12)
            entries.append(native.entry(kind, us, BASE + begin * MIB, n * MIB))
            for page in range(begin, begin + n):
                pages.setdefault(page, []).append((us * 1000, kind != native.UNMAP))
        path = native.write(self.folder / "mapped.vpmm", entries)
        spans, _ = space.mapped_of(traces.read_native(path, "mapped").entries)
        for page, changes in pages.items():
            inside = [(start, end) for start, end, address, n_bytes in zip(*spans)
                      if address <= BASE + page * MIB < address + n_bytes]
            for (at, is_mapped), (until, _) in zip(changes, changes[1:] + [(1e12, False)]):
                middle = (at + until) / 2
                self.assertEqual(sum(start <= middle < end for start, end in inside), is_mapped)

    def test_damaged_replays(self):
        """What `vpmm replay --json` printed, with bytes changed, lost and repeated, and a dump, which is none."""
        import failures
        import replays
        points = [[at, at % 7 << 20, 8 << 20] for at in range(20)]
        whole = json.dumps({"trace": "x", "replays": [{"through": "pool", "over_time": points}]}).encode()
        path, generator, answers = self.folder / "damaged.json", random.Random(13), {True: 0, False: 0}
        for number in range(1500):
            content = bytearray(whole)
            for _ in range(number % 4):
                begin = generator.randrange(len(content))
                end = begin + generator.choice((0, 1, 1, 30))
                content[begin:end] = generator.choice((b"", b"-", b"9" * 400, b"null", b"{", b"\xff", b"1e999",
                                                       content[begin:end] * 2))
            path.write_bytes(content[:generator.randrange(len(content))] if number % 9 == 8 else content)
            try:
                answers[bool(replays.read(path, "damaged", None, None))] += 1
            except failures.Wrong as error:
                self.assertEqual(len(str(error).splitlines()), 1)
                answers[False] += 1
        self.assertGreater(min(answers.values()), 100)
        path.write_text('{"vpmm_dump": 1, "pid": 1, "devices": [{"device": 0, "regions": []}]}')
        with self.assertRaisesRegex(failures.Wrong, "not what vpmm replay --json prints"):
            replays.read(path, "damaged", None, None)

    def test_words(self):
        import units
        for n_bytes, text in ((0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1024, "1 KiB"), (1536, "1.5 KiB"),
                              (1023 * MIB, "1 GiB"), (640 * MIB, "640 MiB"), (12.34 * 1024 * MIB, "12.3 GiB")):
            self.assertEqual(units.bytes_text(n_bytes), text)
        for text, ns in (("1.5", 1.5e9), ("20ms", 2e7), ("3 us", 3000), (".5min", 30e9), ("1e3", None), ("-1", None), ("", None)):
            self.assertEqual(units.parsed_time(text), ns)
        self.assertEqual(units.byte_ticks(100 * MIB, 6), [step * 32 * MIB for step in range(4)])


if __name__ == "__main__":
    plotted.main()
