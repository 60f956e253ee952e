# SPDX-License-Identifier: MIT
"""A process from its start to its end: constructors that allocate, threads and streams that come and go, plug-ins, exec,
frees at exit, devices and drivers that can do nothing for us, two copies of the library; and memory that goes back after
a while."""
import os
import shutil
import unittest

import harness

MIB = 1 << 20
OFF = {"VPMM_DISABLE": 1}


class Life(unittest.TestCase):
    def scene(self, *arguments, status=0, **more):
        path = harness.simulated("life", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
        run = harness.run_simulated(path, *arguments, **more)
        self.assertEqual(run.status, status, run.output + run.errors)
        return run

    def as_bare(self, *arguments, **more):
        run = self.scene(*arguments, **more)
        bare = self.scene(*arguments, preload=[], **more)
        self.assertEqual(run.output, bare.output)
        return run


class Processes(Life):
    def test_frees_and_allocations_while_the_process_ends(self):
        run = self.as_bare("late_frees", VPMM_IDLE_MS=1)
        self.assertEqual([line.split()[-1] for line in run.output.splitlines()], ["0"] * 5)
        device = run.statistics[0]["devices"][0]
        self.assertEqual((device["mallocs"], device["audit"]), (4, 0))

    def test_small_stacks(self):
        path = harness.simulated("small_stack", f"-I{harness.options.root}/include")
        for form in "text", "json":
            run = harness.run_simulated(path, VPMM_SIM_DEVICES=8, VPMM_DUMP_FORMAT=form)
            self.assertEqual((run.status, run.output), (0, "alive\n"), run.errors)
            self.assertIn("zombie", run.errors)

    def test_end_without_handlers(self):
        run = self.as_bare("quick_exit", status=3)
        self.assertEqual((run.errors, run.statistics), ("", []))

    def test_exec_begins_anew(self):
        run = self.as_bare("exec")
        self.assertEqual([told["devices"][0]["mallocs"] for told in run.statistics], [2])

    def test_plug_in_that_is_closed(self):
        plugin = harness.shared("allocating.so", "programs/allocating.c", "-isystem", harness.options.cuda_headers,
                                os.path.join(harness.options.sim, "libcuda.so.1"))
        run = self.as_bare("plugin", plugin)
        self.assertEqual(run.statistics[0]["devices"][0]["mallocs"], 3)

    def test_library_whose_constructor_allocates(self):
        early = harness.shared("liballocating.so", "programs/allocating.c", "-DEARLY", "-isystem",
                               harness.options.cuda_headers, os.path.join(harness.options.sim, "libcuda.so.1"))
        path = harness.simulated("life-early", "-Wl,--no-as-needed", early, f"-Wl,-rpath,{harness.work}",
                                 "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", source="life.c")
        for name in "quiet", "late_frees":
            run = harness.run_simulated(path, name)
            self.assertEqual(run.output, harness.run_simulated(path, name, preload=[]).output)
            self.assertEqual(run.output.splitlines()[:2], ["allocate 0", "free 0"])
            self.assertGreater(run.statistics[0]["devices"][0]["mallocs"], 1)

    def test_constructor_of_another_preloaded_library_allocates(self):
        early = harness.shared("libpreloaded.so", "programs/allocating.c", "-DEARLY", "-isystem",
                               harness.options.cuda_headers, os.path.join(harness.options.sim, "libcuda.so.1"))
        for preload in [harness.options.shared_library, early], [early, harness.options.shared_library]:
            run = self.scene("quiet", preload=preload)
            self.assertEqual(run.output.splitlines()[:2], ["allocate 0", "free 0"])
            self.assertEqual(run.statistics[0]["devices"][0]["mallocs"], 3)

    def test_threads_that_end_leave_their_memory_to_others(self):
        run = self.as_bare("threads_end")
        device = run.statistics[0]["devices"][0]
        self.assertEqual((device["mallocs"], device["held_peak_bytes"], device["audit"]), (4 * 32 + 1, 128 * MIB, 0))

    def test_streams_that_come_and_go_leave_nothing(self):
        run, bare = self.scene("streams"), self.scene("streams", preload=[])
        device = run.statistics[0]["devices"][0]
        self.assertEqual((device["mallocs"], device["held_peak_bytes"], device["audit"]), (4000, 16 * MIB, 0))
        grown = [int(done.errors.split("grown by ")[1].split()[0]) for done in (run, bare)]
        self.assertLess(grown[0] - grown[1], 512)


class Places(Life):
    def test_program_with_mappings_of_its_own(self):
        source = os.path.join(harness.options.root, "test", "programs", "vmm.c")
        path = harness.compile("own-mappings", source, "-isystem", harness.options.cuda_headers,
                               os.path.join(harness.options.sim, "libcuda.so.1"), "-ldl", "-lpthread")
        run, bare = (harness.run_simulated(path, preload=preload) for preload in (None, []))
        self.assertEqual((run.status, run.output, run.errors), (bare.status, bare.output, ""))
        for told in run.statistics:
            self.assertEqual(told["devices"][0]["live_bytes"], 0)

    def test_device_without_virtual_memory_management(self):
        run = self.as_bare("quiet", VPMM_SIM_VMM=0, VPMM_LOG="info", VPMM_IDLE_MS=1)
        self.assertEqual(run.output, "threads more: 0\n")
        self.assertEqual(run.statistics, [])
        told = [line for line in run.errors.splitlines() if "vpmm[" in line]
        self.assertEqual(len(told), 1, run.errors)
        self.assertIn("device 0 cannot map memory", told[0])
        self.assertNotIn("vpmm[", self.scene("quiet", VPMM_SIM_VMM=0).errors)

    def test_driver_that_is_too_old(self):
        run = self.scene("quiet", VPMM_SIM_VERSION=11020)
        self.assertEqual((run.statistics, run.errors), ([], ""))

    def test_no_device(self):
        path = harness.simulated("driver-life", source="driver.c")
        asked = ["init", "malloc:8", "async:8"]
        run, bare = (harness.run_simulated(path, *asked, VPMM_SIM_DEVICES=0, preload=preload) for preload in (None, []))
        self.assertEqual((run.status, run.output, run.errors), (bare.status, bare.output, ""))

    def test_two_copies_of_the_library(self):
        copy = os.path.join(harness.work, "copy", "libvpmm.so")
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(harness.options.shared_library, copy)
        for preload in [harness.options.shared_library, copy], [harness.options.shared_library, harness.options.shared_library]:
            run = self.scene("threads_end", preload=preload)
            self.assertEqual(run.output, "malloc 0\n")
            served = sum(told["devices"][0]["mallocs"] for told in run.statistics)
            self.assertEqual((len(run.statistics), served), (1, 4 * 32 + 1), run.errors)

    def test_bound_at_start(self):
        run = self.as_bare("quiet", LD_BIND_NOW=1, VPMM_IDLE_MS="off")
        self.assertEqual(run.statistics[0]["devices"][0]["mallocs"], 2)

    def test_other_programs_are_left_alone(self):
        run = self.as_bare("quiet", VPMM_ONLY="another", VPMM_IDLE_MS=1)
        self.assertEqual(run.statistics, [])


class Idle(Life):
    def test_what_nobody_asked_for_goes_back(self):
        run = self.scene("idle", VPMM_IDLE_MS=20)
        self.assertEqual(run.output, "goes back 1\nthreads more: 1, their blocked signals: fffffffe7ffbfebf\n")
        device = run.statistics[0]["devices"][0]
        self.assertGreaterEqual(device["trimmed_bytes"], 128 * MIB)
        self.assertEqual((device["mallocs"], device["audit"], run.errors), (4, 0, ""))

    def test_without_the_option_there_is_no_thread(self):
        for more in {}, {"VPMM_IDLE_MS": "off"}:
            run = self.as_bare("quiet", **more)
            self.assertEqual(run.output, "threads more: 0\n")
            self.assertEqual(run.statistics[0]["devices"][0]["trimmed_bytes"], 0)

    def test_a_capture_survives_it(self):
        self.assertEqual(self.scene("idle_capture", VPMM_IDLE_MS=20).output, "goes back 1\nend 0\n")

    def test_pending_memory_goes_back_when_it_is_complete(self):
        self.assertEqual(self.scene("idle_pending", VPMM_IDLE_MS=4).output, "asked 1\nreleased meanwhile 0\ngoes back 1\n")

    def test_a_child_has_no_such_thread(self):
        run = self.scene("idle_fork", VPMM_IDLE_MS=20, VPMM_DECAY_MS="off")
        self.assertEqual(run.output, "threads of the child: 1\nchild 0\ngoes back 1\n")

    def test_the_process_ends_whatever_it_does(self):
        for _ in range(10):
            run = self.scene("idle_end", VPMM_IDLE_MS=1, VPMM_DECAY_MS="off")
            self.assertEqual((run.errors, run.statistics[0]["devices"][0]["audit"]), ("", 0))


class Decay(Life):
    def test_what_is_not_needed_for_a_while_goes_back_from_a_busy_program(self):
        run = self.scene("decay", VPMM_DECAY_MS=40)
        self.assertEqual(run.output, "goes back 1\nthreads more: 1, their blocked signals: fffffffe7ffbfebf\n")
        device = run.statistics[0]["devices"][0]
        self.assertGreaterEqual(device["decayed_bytes"], 64 * MIB)
        self.assertEqual((device["trimmed_bytes"], device["audit"], run.errors), (0, 0, ""))

    def test_it_is_on_by_default_and_can_be_switched_off(self):
        self.assertEqual(self.scene("large").output, "threads more: 1\n")
        for value in 0, "off":
            run = self.as_bare("large", VPMM_DECAY_MS=value)
            self.assertEqual(run.output, "threads more: 0\n")
            self.assertEqual(run.statistics[0]["devices"][0]["decayed_bytes"], 0)

    def test_both_options_share_a_thread(self):
        run = self.scene("idle", VPMM_IDLE_MS=20, VPMM_DECAY_MS=8)
        self.assertEqual(run.output, "goes back 1\nthreads more: 1, their blocked signals: fffffffe7ffbfebf\n")

    def test_a_child_has_no_such_thread(self):
        run = self.scene("idle_fork", VPMM_DECAY_MS=40)
        self.assertEqual(run.output, "threads of the child: 1\nchild 0\ngoes back 1\n")

    def test_the_process_ends_whatever_it_does(self):
        for _ in range(10):
            run = self.scene("idle_end", VPMM_DECAY_MS=1)
            self.assertEqual((run.errors, run.statistics[0]["devices"][0]["audit"]), ("", 0))


if __name__ == "__main__":
    harness.main()
