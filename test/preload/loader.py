# SPDX-License-Identifier: MIT
"""How programs come to a driver function, and that each way ends at our wrapper, or, where nobody can help it, knowingly
past it; and that everything else a program asks its loader is answered as if nothing were preloaded."""
import os
import re
import subprocess
import unittest

import harness

OURS = "libvpmm.so"
DRIVER = "libcuda.so.1"


class Loader(unittest.TestCase):
    def reach(self, *arguments, name="reach", build=(), **more):
        folder = harness.stub()
        run = harness.Run([harness.program(name, *build, source="reach.c"), *arguments], library_path=[folder], **more)
        self.assertEqual(run.status, 0, run.errors)
        return run

    def check_reached(self, run):
        words = run.words()
        self.assertEqual(words["cuInit"], DRIVER)
        for name in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync"):
            self.assertEqual(words[name], OURS)
        self.assertEqual((words["sync"], words["async"]), ("0", "0"))
        self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemAllocAsync"])

    def check_bypassed(self, run):
        words = run.words()
        for name in ("cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync"):
            self.assertEqual(words[name], DRIVER)
        self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemAllocAsync"])

    def linked(self, *flags):
        folder = harness.stub()
        name = "-".join(["reach-linked", *(flag.strip("-").replace(",", "") for flag in flags)])
        return self.reach("link", name=name, build=["-DLINKED", *flags, os.path.join(folder, DRIVER)])

    def test_opened(self):
        self.check_reached(self.reach("open", DRIVER))

    def test_opened_by_full_path(self):
        harness.shared("elsewhere/libcuda.so.580.1", "stub/stub.c", "-Wl,-soname,libcuda.so.1",
                       "-Wl,-Bsymbolic-functions")
        run = self.reach("open", os.path.join(harness.work, "elsewhere", "libcuda.so.580.1"))
        self.assertEqual(run.words()["cuMemAlloc_v2"], OURS)
        self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemAllocAsync"])

    def test_opened_again_elsewhere(self):
        self.check_reached(self.reach("again", DRIVER))

    def test_linked(self):
        self.check_reached(self.linked())

    def test_linked_and_bound_at_start(self):
        self.check_reached(self.linked("-Wl,-z,now"))
        self.check_reached(self.reach("open", DRIVER, LD_BIND_NOW=1))

    def test_deepbind_is_a_known_bypass(self):
        plugin = harness.shared("plugin.so", "programs/plugin.c")
        self.check_bypassed(self.reach("deep", plugin, DRIVER))

    def test_another_namespace_is_a_known_bypass(self):
        plugin = harness.shared("plugin.so", "programs/plugin.c")
        self.check_bypassed(self.reach("apart", plugin, DRIVER))

    def test_foreign_library_with_a_driver_name(self):
        foreign = harness.shared("libforeign.so", "programs/foreign.c")
        words = self.reach("open", foreign).words()
        self.assertEqual(words["cuMemAlloc_v2"], "libforeign.so")
        self.assertEqual((words["sync"], words["async"]), ("4242", "4343"))

    def test_look_up_in_a_constructor(self):
        library = harness.shared("libearly.so", "programs/early.c")
        run = self.reach("open", DRIVER, name="reach-early",
                         build=["-Wl,--no-as-needed", library, f"-Wl,-rpath,{harness.work}"])
        self.assertEqual(run.output.count(f"cuMemAlloc_v2 {OURS}"), 2)
        self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemAllocAsync"] * 2)

    def test_cold_start_of_16_threads(self):
        program = harness.program("cold")
        for _ in range(20):
            run = harness.Run([program, DRIVER, OURS], library_path=[harness.stub()])
            self.assertEqual(run.words(), {"ours": "16", "calls": "16"}, run.errors)
            self.assertEqual(run.calls, ["cuMemAlloc_v2"] * 16)

    def test_two_preloaded_libraries(self):
        behind = self.reach("open", DRIVER, preload=[harness.options.shared_library, harness.spy()])
        self.check_reached(behind)
        self.assertIn(["dlsym", "cuMemAlloc_v2", DRIVER], behind.look_ups)
        before = self.reach("open", DRIVER, preload=[harness.spy(), harness.options.shared_library])
        self.check_reached(before)
        self.assertIn(["dlsym", "cuMemAlloc_v2", OURS], before.look_ups)

    def test_codes_before_initialisation(self):
        for code in (3, 201, 709):
            run = self.reach("open", DRIVER, STUB_RESULT=f"cuMemAllocAsync={code}")
            self.assertEqual(run.words()["async"], str(code))
            self.assertEqual(run.calls.count("cuMemAllocAsync"), 1)

    def test_disabled(self):
        for setting in ({"VPMM_DISABLE": "1"}, {"VPMM_ONLY": "no-such-program"}):
            run = self.reach("open", DRIVER, STUB_RESULT="cuMemAlloc_v2=2", **setting)
            self.assertEqual(run.words()["sync"], "2")
            self.assertEqual(run.calls, ["cuMemAlloc_v2", "cuMemAllocAsync"])
            self.assertEqual(run.errors, "")


class Scope(unittest.TestCase):
    """dlsym alone, unoptimised and optimised, and as shipped."""

    def libraries(self):
        root, headers = harness.options.root, harness.options.cuda_headers
        sources = [os.path.join(root, "src", "lib", "preload", name)
                   for name in ("dlsym.c", "original.c", "wrap_lookup.c")]
        for level in ("-O0", "-O2"):
            yield harness.shared(f"dlsym{level}.so", "programs/listed.c", *sources, "-std=c11", level,
                                 "-I" + os.path.join(root, "src", "lib"), "-isystem", headers)
        yield harness.options.shared_library

    def test_same_answers_as_without(self):
        first = harness.shared("libfirst.so", "programs/scope.c", "-DFIRST")
        second = harness.shared("libsecond.so", "programs/scope.c", "-DSECOND")
        hidden = harness.shared("libhidden.so", "programs/scope.c", "-DHIDDEN")
        program = harness.program("scope", "-DPROGRAM", "-Wl,--no-as-needed", first, second,
                                  f"-Wl,-rpath,{harness.work}")
        command, folders = [program, hidden, DRIVER], [harness.stub()]
        bare = harness.Run(command, preload=[], library_path=folders)
        self.assertEqual(bare.status, 0, bare.errors)
        self.assertIn("next of first 2\ndefault 1\nself 3\ndefault in program -1\n", bare.output)
        for library in self.libraries():
            with self.subTest(library=os.path.basename(library)):
                run = harness.Run(command, preload=[library], library_path=folders)
                self.assertEqual(run.status, 0, run.errors)
                self.assertEqual(run.output, bare.output)


class Exports(unittest.TestCase):
    """The exported names, against the list written by hand."""

    def test_exported_names(self):
        rows = subprocess.run(["nm", "-D", "--defined-only", harness.options.shared_library], capture_output=True,
                              text=True, check=True).stdout.splitlines()
        with open(os.path.join(harness.HERE, "expected-names.txt"), encoding="utf-8") as file:
            expected = {line.strip() for line in file if line.strip() and not line.startswith("#")}
        self.assertEqual({row.split()[-1] for row in rows}, expected | {"dlsym", "vpmm_interface_1"})

    def test_needs_the_c_library_alone(self):
        text = subprocess.run(["readelf", "-d", harness.options.shared_library], capture_output=True, text=True,
                              check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        self.assertLessEqual(needed, {"libc.so.6", "libdl.so.2", "libpthread.so.0"})


class LookUps(unittest.TestCase):
    """cuGetProcAddress: the version decides the ABI, the flags the spelling, and what is not ours stays the driver's."""

    def look(self, form, *asked):
        run = harness.Run([harness.program("look"), DRIVER, str(form), *asked], library_path=[harness.stub()])
        self.assertEqual(run.status, 0, run.errors)
        return [line.split()[1:] for line in run.output.splitlines()]

    def test_versions(self):
        for form in (4, 5):
            old, new, newer = self.look(form, "cuMemAlloc:2000:0", "cuMemAlloc:3020:0", "cuMemAlloc:13000:0")
            self.assertEqual(old[:2], ["0", DRIVER])
            self.assertEqual(new, ["0", OURS, "other"])
            self.assertEqual(newer, ["0", OURS, "same"])

    def test_unknown_newer_abi_stays_the_drivers(self):
        ours, newer = self.look(5, "cuMemAlloc:13000:0", "cuMemAlloc:14000:0")
        self.assertEqual((ours[1], newer[1]), (OURS, DRIVER))

    def test_code_that_is_not_exported_under_the_name(self):
        known, checked, too_new = self.look(5, "cuMemGetInfo:3020:0", "cuMemGetInfo:12000:0",
                                            "cuMemGetInfo:14000:0")
        self.assertEqual((known[1], checked[1], checked[2], too_new[1]), (OURS, OURS, "same", DRIVER))

    def test_contexts_by_version(self):
        answers = self.look(5, *(f"cuCtxCreate:{version}:0" for version in (3020, 11030, 11040, 12040, 12050)))
        self.assertEqual([answer[1] for answer in answers], [OURS] * 5)
        self.assertEqual([answer[2] for answer in answers], ["other", "same", "other", "same", "other"])

    def test_spellings(self):
        plain, legacy, per_thread, either = self.look(
            5, "cuMemAllocAsync:11020:0", "cuMemAllocAsync:11020:1", "cuMemAllocAsync:11020:2", "cuMemAlloc:3020:2")
        self.assertEqual([row[1] for row in (plain, legacy, per_thread, either)], [OURS] * 4)
        self.assertEqual((legacy[2], per_thread[2]), ("same", "other"))

    def test_itself(self):
        four, five, again = self.look(5, "cuGetProcAddress:11030:0", "cuGetProcAddress:12000:0",
                                      "cuGetProcAddress:13000:0")
        self.assertEqual([four[1], five[1], again[1]], [OURS] * 3)
        self.assertEqual((five[2], again[2]), ("other", "same"))

    def test_unknown_and_empty(self):
        unknown, empty, other = self.look(5, "cuNoSuchFunction:13000:0", ":0:0", "cuInit:2000:0")
        self.assertEqual(unknown[0:2], ["500", "nothing"])
        self.assertEqual(empty[0:2], ["0", DRIVER])
        self.assertEqual(other[0:2], ["0", DRIVER])


if __name__ == "__main__":
    harness.main()
