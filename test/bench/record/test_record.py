# SPDX-License-Identifier: MIT
"""The recorder on the simulated device: what a program does that reaches the driver in every way, line by line; and that all
of the functions in the recorder's list are handed out as the recorder's by each look-up."""
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "preload"), os.path.join(HERE, "..")]
import harness  # noqa: E402
import rawtrace  # noqa: E402

MIB = 1 << 20
LIST = os.path.join(HERE, "preload", "api.def")
# Without times and durations; addresses and streams by the order in which they appear.
EXPECTED = [
    f"A a {3 * MIB} - s",
    f"A b {4 * MIB} one a", "K one", "E 1 one", "W 1 two", "A c 512 two a", "K two", "F b two a", "F c two a",
    "K one",
    f"A d {5 * MIB} own a", "F a - s",
]


def readable(lines):
    """Lines of a clean trace, with names in place of numbers that may differ."""
    streams = {"0": "-", rawtrace.PER_THREAD: "own"}
    addresses = {}
    for line in lines:
        words = line.split(",")
        mark, stream = words[0], words[rawtrace.STREAM[words[0]]]
        shown = [mark]
        if mark in "AF":
            shown.append(addresses.setdefault(words[1], "abcdef"[len(addresses)]))
        if mark == "A":
            shown.append(words[2])
        if mark in "EW":
            shown.append(words[1])
        shown.append(streams.setdefault(stream, ["one", "two"][min(len(streams) - 2, 1)]))
        if mark in "AF":
            shown.append(words[5])
        yield " ".join(shown)


class Recorder(unittest.TestCase):
    def traced(self, name="traced", **environment):
        program = harness.compile(name, os.path.join(HERE, "traced.c"), "-isystem", harness.options.cuda_headers,
                                  os.path.join(harness.options.sim, "libcuda.so.1"), "-ldl")
        return harness.run_simulated(program, **environment)

    def test_every_call_is_a_line(self):
        path = os.path.join(harness.work, "raw.csv")
        run = self.traced(RECORD=path)
        self.assertEqual((run.status, run.output, run.errors), (0, "", ""))
        with open(path, encoding="ascii") as file:
            lines = list(rawtrace.clean(file))
        self.assertEqual(list(readable(lines)), EXPECTED)
        durations = [int(line.split(",")[-1]) for line in lines if line.startswith("K")]
        self.assertNotIn(0, durations)
        times = [int(line.split(",")[rawtrace.TIME[line[0]]]) for line in lines]
        self.assertEqual(times, sorted(times))

    def test_each_process_has_its_file_and_a_child_has_none(self):
        folder = os.path.join(harness.work, "many")
        os.mkdir(folder)
        self.assertEqual(self.traced(RECORD=os.path.join(folder, "%p.csv")).status, 0)
        self.assertEqual(len(os.listdir(folder)), 1)
        self.assertRegex(os.listdir(folder)[0], r"^\d+\.csv$")

    def test_nothing_is_written_unless_asked_for(self):
        run = self.traced(RECORD="")
        self.assertEqual((run.status, run.errors), (0, ""))

    def test_a_file_that_cannot_be_written_is_told(self):
        run = self.traced(RECORD="/no/such/folder/file")
        self.assertEqual((run.status, run.errors), (0, "record: /no/such/folder/file cannot be written\n"))

    def test_every_function_of_the_list_is_handed_out(self):
        with open(LIST, encoding="ascii") as file:
            rows = re.findall(r"^VPMM_API\((\w+), (\w+), (\d+), (\w+),", file.read(), re.MULTILINE)
        self.assertGreater(len(rows), 25)
        asked = [f"{base}:13000:{2 if spelling == 'PTSZ' else 1}" for _, base, _, spelling in rows
                 if not base.startswith(("cuGetProcAddress", "cuMemcpy"))]
        run = harness.Run([harness.program("look"), "libcuda.so.1", "5", *asked], library_path=[harness.stub()])
        self.assertEqual(run.status, 0, run.errors)
        owners = {line.split()[0]: line.split()[2] for line in run.output.splitlines()}
        self.assertEqual(owners, {name: os.path.basename(harness.options.shared_library) for name in asked})


if __name__ == "__main__":
    harness.main()
