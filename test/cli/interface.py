# SPDX-License-Identifier: MIT
"""A program that was linked to libvpmm_api.a, bare and preloaded, on the simulated device."""
import json
import os
import unittest

import rig

NOWHERE = "libvpmm.so is not preloaded"
LEFT_ALONE = "libvpmm.so leaves this process to CUDA"
PAGES = {"VPMM_MIN_SIZE": "page"}
NO_POOL = "the device has no pool"
NOTHING = "live 0 requested 0 pending 0 outstanding 0 ready 0 held 0"


def program():
    return rig.compile("interface", "-I", os.path.join(rig.options.root, "include"), "-isystem",
                       rig.options.cuda_headers, rig.options.api, os.path.join(rig.options.sim, "libcuda.so.1"),
                       "-ldl", "-lpthread")


class Interface(unittest.TestCase):
    def play(self, scene, is_preloaded=True, **more):
        preload = {"LD_PRELOAD": rig.options.shared_library} if is_preloaded else {}
        done = rig.call(program(), scene, **preload, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [line for line in done.stdout.splitlines() if ": " in line and not line.startswith((" ", "vpmm "))]

    def assert_does_nothing(self, lines, result, version):
        self.assertEqual(lines, [f"version: {version}", "devices: -1 -1", f"snapshot: {result}: {NOTHING}",
                                 f"requests: {result}: pool 0 small 0", f"reap: {result}: pending 0",
                                 f"trim: {result}: given back 0", f"dump: {result}"])

    def test_does_nothing_without_the_library(self):
        self.assert_does_nothing(self.play("cold", is_preloaded=False), NOWHERE, "none")

    def test_does_nothing_where_the_library_is_off(self):
        for name, value in (("VPMM_DISABLE", "1"), ("VPMM_ONLY", "another")):
            self.assert_does_nothing(self.play("cold", **{name: value}), LEFT_ALONE, "0.1.0")

    def test_asked_before_the_first_request(self):
        lines = self.play("cold")
        self.assertEqual(lines[1:], ["devices: -1 -1", f"snapshot: {NO_POOL}: {NOTHING}",
                                     "requests: done: pool 0 small 0", f"reap: {NO_POOL}: pending 0",
                                     f"trim: {NO_POOL}: given back 0", f"dump: {NO_POOL}"])

    def test_figures_reap_and_trim(self):
        """A small block shares pages, and is live for the one that it took."""
        spinning = "snapshot: done: live 66 requested 65 pending 32 outstanding 98 ready 0 held 98"
        self.assertEqual(self.play("warm"), [
            spinning, "trim: done: given back 0", spinning,
            "version: 0.1.0", "devices: 0 -1", spinning, "requests: done: pool 2 small 0",
            "reap: done: pending 0", "trim: done: given back 32", "dump: done",
            "reap: done: pending 0",
            "snapshot: done: live 0 requested 0 pending 0 outstanding 0 ready 66 held 66",
            "trim: done: given back 66", f"snapshot: done: {NOTHING}"])

    def test_figures_reap_and_trim_where_small_requests_pass(self):
        spinning = "snapshot: done: live 64 requested 63 pending 32 outstanding 96 ready 0 held 96"
        self.assertEqual(self.play("warm", **PAGES), [
            spinning, "trim: done: given back 0", spinning,
            "version: 0.1.0", "devices: 0 -1", spinning, "requests: done: pool 1 small 1",
            "reap: done: pending 0", "trim: done: given back 32", "dump: done",
            "reap: done: pending 0",
            "snapshot: done: live 0 requested 0 pending 0 outstanding 0 ready 64 held 64",
            "trim: done: given back 64", f"snapshot: done: {NOTHING}"])

    def test_the_same_program_without_the_library(self):
        lines = self.play("warm", is_preloaded=False)
        self.assertEqual(len(lines), 14)
        self.assertEqual({line.split(": ")[1] for line in lines} - {"none", "-1 -1"}, {NOWHERE})

    def test_dump_to_a_descriptor(self):
        done = rig.call(program(), "warm", LD_PRELOAD=rig.options.shared_library, **PAGES)
        self.assertIn("vpmm device 0: [32][...]\n", done.stdout)

    def test_failed_wait_is_tried_again(self):
        """What could not be waited for stays pending; nothing is lost."""
        self.assertEqual(self.play("failing", VPMM_SIM_FAULT="cuEventSynchronize:1:999"), [
            "reap: the driver failed: pending 32",
            "snapshot: done: live 16 requested 16 pending 32 outstanding 48 ready 0 held 48",
            "reap: done: pending 0",
            "snapshot: done: live 16 requested 16 pending 0 outstanding 16 ready 32 held 48"])

    def test_no_capture_ends(self):
        lines = self.play("capture")
        busy = "reap: something under way stands in the way: pending 16"
        self.assertEqual(lines[:2], [busy, "trim: done: given back 32"])
        self.assertEqual(lines.count(busy), 2)
        self.assertEqual(lines[-2:], [
            "reap: done: pending 0",
            "snapshot: done: live 0 requested 0 pending 0 outstanding 0 ready 16 held 16"])

    def test_from_where_cuda_calls_back(self):
        lines = self.play("callback")
        self.assertEqual(lines[:2], [
            "snapshot: done: live 16 requested 16 pending 32 outstanding 48 ready 0 held 48", "devices: 0"])
        self.assertEqual(lines[-1], "reap: done: pending 0")

    def test_from_a_thread_without_a_context_and_from_a_child(self):
        lines = self.play("elsewhere")
        self.assertEqual(lines[:2], [
            "reap: done: pending 0",
            "snapshot: done: live 16 requested 16 pending 0 outstanding 16 ready 32 held 48"])
        self.assert_does_nothing(lines[2:], LEFT_ALONE, "0.1.0")

    def test_several_devices(self):
        self.assertEqual(self.play("devices", VPMM_SIM_DEVICES=2), [
            "devices: 0 1 -1", "reap: done: pending 0", "one: done: 32", "all: done: 16"])

    def test_several_threads(self):
        """Each finds at least its own blocks outstanding, and nothing is left over."""
        path = os.path.join(rig.work, "crowd.json")
        lines = self.play("crowd", VPMM_STATS=path)
        self.assertEqual(lines[0], "reap: done: pending 0")
        self.assertEqual(lines[-1], f"snapshot: done: {NOTHING}")
        with open(path, encoding="utf-8") as file:
            device = json.load(file)["devices"][0]
        self.assertEqual((device["audit"], device["pending_bytes"], device["outstanding_bytes"]), (0, 0, 0))

    def test_wrong_arguments_and_structs_of_other_releases(self):
        wrong = "an argument is not what it should be"
        self.assertEqual(self.play("wrong"), [
            f"no size: {wrong}", f"no struct: {wrong}", f"kind: {wrong}", f"form: {wrong}", f"descriptor: {wrong}",
            f"device: {NO_POOL}", "text: no result of vpmm", "larger: done: live 16, beyond 0",
            "smaller: done: live 16, beyond 1"])


if __name__ == "__main__":
    rig.main()
