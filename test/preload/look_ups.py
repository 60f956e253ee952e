# SPDX-License-Identifier: MIT
"""What the tests of look-ups share. A spy stands in front of the library under test and notes each
look-up. Exactly the names of expected-look-ups.txt and expected-names.txt must be handed out as
ours, everything else as the driver's. (A runtime makes all its look-ups before it notices that the
stub is no driver.)"""
import os
import unittest

import harness

OURS = "libvpmm.so"
DRIVER = "libcuda.so.1"
PER_THREAD = 2  # CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM


def rows(name):
    with open(os.path.join(harness.HERE, name), encoding="utf-8") as file:
        return [line.split() for line in file if line.strip() and not line.startswith("#")]


class LookUps(unittest.TestCase):
    versions = {row[0]: int(row[1]) for row in rows("expected-look-ups.txt")}
    runtime = {row[0] for row in rows("expected-look-ups.txt") if row[2:] == ["runtime"]}
    per_thread = {row[0] for row in rows("expected-look-ups.txt") if row[2:] == ["per-thread"]}
    names = {row[0] for row in rows("expected-names.txt")}

    def spied(self, command, form=5, folders=()):
        run = harness.Run(command, preload=[harness.spy(), harness.options.shared_library],
                          library_path=[harness.stub(form), *folders])
        self.assertEqual(run.status, 0, run.errors)
        self.assertIn("result", run.output)
        return run

    def check_look_ups(self, run, at_least):
        look_ups = [row[1:] for row in run.look_ups if row[0] == "look-up"]
        self.assertGreater(len(look_ups), at_least)
        for name, version, flags, owner in look_ups:
            is_ours = int(version) >= self.versions.get(name, 1 << 30)
            is_ours &= name not in self.per_thread or int(flags) & PER_THREAD != 0
            with self.subTest(name=name, version=version, flags=flags):
                if is_ours:
                    self.assertEqual(owner, OURS)
                else:
                    self.assertIn(owner, (DRIVER, "nothing"))
        self.assertLessEqual(self.runtime, {row[0] for row in look_ups})

    def check_names(self, run, at_least):
        names = [row[1:] for row in run.look_ups if row[0] == "dlsym"]
        self.assertGreater(len(names), at_least)
        for name, owner in names:
            with self.subTest(name=name):
                if name in self.names and owner != "nothing":
                    self.assertEqual(owner, OURS)
                else:
                    self.assertNotEqual(owner, OURS)
        return {name for name, owner in names if owner == OURS}

    def check(self, run):
        self.check_look_ups(run, 400)
        self.check_names(run, 0)
