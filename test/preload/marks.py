# SPDX-License-Identifier: MIT
"""What a free on the legacy stream leaves: a mark where the program may have another blocking stream, and no driver call
where it has none."""
import os
import re
import unittest

import harness

SIZES = {"large": 4 << 20, "small": 5000}
N_FREES = 100
N_CLOSED_MAX = 8  # batches, each of which is twice as long as the one before
EVERY = dict(VPMM_MIN_SIZE=1)


class Marks(unittest.TestCase):
    def run_program(self, *arguments, **more):
        run = harness.run_simulated(harness.simulated("marks"), *arguments, **more)
        self.assertEqual(run.status, 0, run.output + run.errors)
        return run.output

    def records(self, how, size):
        return int(self.run_program("records", how, str(SIZES[size]), **EVERY).split()[1])

    def test_no_mark_without_a_blocking_stream(self):
        for how in ("nothing", "non-blocking", "legacy"):
            for size in SIZES:
                with self.subTest(how=how, size=size):
                    self.assertLess(self.records(how, size), N_CLOSED_MAX)

    def test_a_mark_for_each_free_beside_one(self):
        for how in ("blocking", "priority", "handle", "spelling", "allocation", "wait"):
            for size in SIZES:
                with self.subTest(how=how, size=size):
                    self.assertEqual(self.records(how, size), N_FREES)

    def test_later_work_of_blocking_streams_waits_as_in_bare_cuda(self):
        for how in ("created", "own"):
            for size in SIZES:
                with self.subTest(how=how, size=size):
                    arguments = ("order", how, str(SIZES[size]))
                    self.assertEqual(self.run_program(*arguments, preload=[]), "later work is held\n")
                    self.assertEqual(self.run_program(*arguments, **EVERY), "later work is held\n")


class Prototypes(unittest.TestCase):
    """Where each call that is only looked at has its stream, against cudaTypedefs.h."""

    def typedefs(self):
        path = os.path.join(harness.options.cuda_headers, "cudaTypedefs.h")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        found = re.findall(r"PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)\(([^;]*?)\);", text, re.DOTALL)
        return {(base, int(version), spelling != ""): parameters.split(",") for base, version, spelling, parameters in found}

    def rows(self, pattern=r"^VPMM_STREAM\((\w+), (\w+), (\d+), (\w+), (\d+), (\d+)\)$"):
        path = os.path.join(harness.options.root, "src", "lib", "preload", "api.def")
        with open(path, encoding="ascii") as file:
            text = re.sub(r"^(VPMM_\w+)_BOTH\((\w+), (\w+), (\d+), (\d+), (.*)$",
                          r"\1(cu\2, cu\3, \4, PLAIN, \6\n\1(cu\2_ptsz, cu\3, \5, PTSZ, \6", file.read(), flags=re.MULTILINE)
            return re.findall(pattern, text, re.MULTILINE)

    def test_each_row_has_as_many_words_and_its_stream_there(self):
        typedefs = self.typedefs()
        self.assertGreater(len(self.rows()), 100)
        for name, base, version, spelling, n, place in self.rows():
            with self.subTest(name=name):
                parameters = typedefs[base, int(version), spelling == "PTSZ"]
                self.assertEqual(len(parameters), int(n))
                if "ptds" not in name:
                    self.assertRegex(parameters[int(place)].strip(), r"^CUstream \w+$")

    def test_what_is_only_passed_on_has_as_many_words(self):
        typedefs = self.typedefs()
        rows = self.rows(r"^VPMM_API\(\w+, (\w+), (\d+), (\w+), \(VPMM_WORDS_(\d+)\)\)$")
        self.assertGreater(len(rows), 20)
        for base, version, spelling, n in rows:
            with self.subTest(base=base, version=version, spelling=spelling):
                self.assertEqual(len(typedefs[base, int(version), spelling == "PTSZ"]), int(n))


if __name__ == "__main__":
    harness.main()
