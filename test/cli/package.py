# SPDX-License-Identifier: MIT
"""The Python package of the folder python: sizes, plans, groups and sources by themselves, and vpmm.Weights on the
simulated device. torch is not needed."""
import json
import os
import subprocess
import sys
import types
import unittest

import rig
import weights


def setUpModule():
    sys.path.insert(0, os.path.join(rig.options.root, "python"))


class Parts(unittest.TestCase):
    def test_sizes(self):
        import vpmm
        for text, value in (("24GiB", 24 << 30), ("1.5 mb", 3 << 19), (7, 7), ("0", 0), ("2T", 2 << 40),
                            (str((1 << 53) + 1), (1 << 53) + 1), (str((1 << 64) - 1), (1 << 64) - 1)):
            self.assertEqual(vpmm.parse_bytes(text), value)
        for wrong in ("", "GiB", "-1", -1, "1e3", None, True, "5 apples", 1 << 64, "16777216T", "9" * 400):
            with self.assertRaises(ValueError):
                vpmm.parse_bytes(wrong)

    def test_plans(self):
        import vpmm
        from vpmm.plans import make_plan
        made = make_plan([["a"], ["b", "c", "b"], [], ["a"]], {"a": 5, "b": 7, "c": 11})
        self.assertEqual(made.steps, (("a",), ("b", "c"), ("a",)))
        self.assertEqual(made.floor, 5 + 7 + 11)
        self.assertEqual(made.names(), ["a", "b", "c"])
        path = made.save(os.path.join(rig.work, "plan.json"))
        self.assertEqual(vpmm.load_plan(path), made)
        for text in ("", "[]", "{}", '{"vpmm_plan": 2, "steps": [], "floor_bytes": 1}',
                     '{"vpmm_plan": 1, "steps": [[1]], "floor_bytes": 1}', '{"vpmm_plan": 1, "steps": []}'):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            with self.assertRaisesRegex(vpmm.BadSource, "plan.json"):
                vpmm.load_plan(path)

    def test_groups(self):
        import vpmm
        from vpmm.groups import make_groups, order_of
        sizes = {"embed.weight": 100, "a.q.weight": 50, "a.q.bias": 1, "norm.weight": 2, "moe.e0.weight": 60,
                 "moe.e1.weight": 60, "head.weight": 100}
        groups = make_groups(sizes, keep=["embed"], direct=["moe"], small=10)
        found = {(group.module, group.kind): group.names for group in groups}
        self.assertEqual(found, {
            ("", vpmm.KEPT): ["embed.weight", "norm.weight"], ("a.q", vpmm.STREAMED): ["a.q.weight", "a.q.bias"],
            ("", vpmm.DIRECT): ["moe.e0.weight", "moe.e1.weight"], ("head", vpmm.STREAMED): ["head.weight"]})
        plan = vpmm.Plan((("embed.weight",), ("a.q.weight",), ("a.q.bias",), ("head.weight",), ("a.q.weight",)), 0)
        self.assertEqual([groups[number].module for number in order_of(groups, plan)], ["a.q", "head", "a.q"])
        self.assertEqual([groups[number].module for number in order_of(groups, plan, {"a.q.bias": "a.q.weight"})],
                         ["a.q", "head", "a.q"])
        joined = make_groups(sizes, units={**{name: name for name in sizes}, "moe.e0.weight": "moe.weight",
                                           "moe.e1.weight": "moe.weight"}, small=10)
        self.assertIn(("moe", ["moe.e0.weight", "moe.e1.weight"]), [(group.module, group.names) for group in joined])
        with self.assertRaisesRegex(vpmm.Unsupported, "nowhere: no weight"):
            make_groups(sizes, keep=["nowhere"])
        with self.assertRaisesRegex(vpmm.BadSource, "x.weight: the plan reads it"):
            order_of(groups, vpmm.Plan((("x.weight",),), 0))

    def test_sources(self):
        import vpmm
        from vpmm.sources import source_files
        folder = os.path.join(rig.work, "model")
        os.makedirs(folder)
        with self.assertRaisesRegex(vpmm.BadSource, "no safetensors file"):
            source_files(folder)
        for name in ("b.safetensors", "a.safetensors"):
            open(os.path.join(folder, name), "w", encoding="utf-8").close()
        both = [os.path.join(folder, name) for name in ("a.safetensors", "b.safetensors")]
        self.assertEqual(source_files(folder), both)
        index = os.path.join(folder, "model.safetensors.index.json")
        for content, expected in (({"weight_map": {"x": "b.safetensors"}}, both[1:]), ({}, None),
                                  ({"weight_map": {"x": "../b"}}, None)):
            with open(index, "w", encoding="utf-8") as file:
                json.dump(content, file)
            if expected:
                self.assertEqual(source_files(folder), expected)
            else:
                self.assertRaises(vpmm.BadSource, source_files, index)

    def test_missing_and_other_tensors(self):
        import vpmm
        from vpmm.sources import Tensors
        from vpmm.weights import Tensor
        opened = types.SimpleNamespace(open=lambda path: (4, {"w": Tensor("BF16", (2, 3), 12, 96)}))
        tensors = Tensors(opened, "x.safetensors")
        for names in (["w"], ["other", "w"]):
            self.assertEqual(tensors.find(names, "BF16", (2, 3)), (4, "w", ("x.safetensors", 96)))
        for name, dtype, shape, words in (("v", "BF16", (2, 3), "v: the source has no such weight"),
                                          ("w", "F16", (2, 3), "w: the model has it as F16"),
                                          ("w", "BF16", (3, 2), "w: the model has the shape")):
            with self.assertRaisesRegex(vpmm.BadSource, words):
                tensors.find([name], dtype, shape)
        with self.assertRaisesRegex(vpmm.BadSource, "w is in another file, too"):
            Tensors(opened, ["x.safetensors", "y.safetensors"])

    def test_graphs(self):
        """A graph as torch.export makes them: a weight shown in another shape is read by the kernel behind it."""
        from vpmm.graphs import plan
        class Node:
            def __init__(self, op, name, *inputs):
                self.op, self.name, self.all_input_nodes = op, name, list(inputs)
                self.target = types.SimpleNamespace(__name__=name + ".default")

        w, b, table, x = (Node("placeholder", name) for name in ("p_w", "p_b", "b_table", "x"))
        shown = Node("call_function", "permute", w)
        first = Node("call_function", "addmm", b, x, shown)
        last = Node("call_function", "mm", first, w, table)
        tensor = types.SimpleNamespace(numel=lambda: 10, element_size=lambda: 2)
        program = types.SimpleNamespace(
            graph=types.SimpleNamespace(nodes=[w, b, table, x, shown, first, last]),
            state_dict={"l.w": tensor, "l.b": tensor},
            graph_signature=types.SimpleNamespace(
                inputs_to_parameters={"p_w": "l.w", "p_b": "l.b"}, inputs_to_buffers={"b_table": "l.table"},
                buffers_to_mutate={}, non_persistent_buffers=["l.table"]))
        found = plan(program)
        self.assertEqual(found.steps, (("l.b", "l.w"), ("l.w",)))
        self.assertEqual(found.floor, 60)


class OnADevice(unittest.TestCase):
    def play(self, budget, *requests, preload=True, name="package", **more):
        path = weights.model(name, [3 << 20, 5 << 20, 7, 4 << 20, (6 << 20) + 1])
        if preload:
            more["LD_PRELOAD"] = rig.options.shared_library
        done = rig.call(sys.executable, "-B", os.path.join(rig.HERE, "programs", "package.py"), path, budget, *requests,
                        PYTHONPATH=os.path.join(rig.options.root, "python"), **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_passes(self):
        self.assertEqual(self.play("14MiB").splitlines(), [
            "dropped: its messages have a place True",
            "interrupted: its messages have a place True",
            "interrupted, and closed once",
            "refused: weight 5 has 1000 bytes, and the data has 1001",
            "need ['all', 'floor', 'host', 'smooth']",
            "sealed again: the same need True",
            "refused: layers.1.weight: it is used where the recorded order has layers.0.weight",
            "yields 0 resident 6",
            "passes 4 held True"])

    def test_a_name_that_is_no_text(self):
        self.assertIn("passes 4 held True", self.play("14MiB", name=os.fsdecode(b"of bytes \xff")))

    def test_limit(self):
        """What weights hold is not there for the pool, and what the pool holds is not there for weights."""
        out = self.play("14MiB", 8 << 20, 4 << 20, 4 << 20, VPMM_LIMIT="20M")
        self.assertEqual([line for line in out.splitlines() if line.startswith("malloc")],
                         ["malloc 2", "malloc 0", "malloc 2"])
        self.assertIn("DeviceFull device memory: VPMM_LIMIT leaves too little of it", out)

    def test_what_the_program_lacks(self):
        """A request that finds no memory gets what is resident, but not what a pass needs."""
        out = self.play("14MiB", f"+{10 << 20}", f"+{2 << 20}", f"+{8 << 20}", VPMM_SIM_BYTES=24 << 20).splitlines()
        self.assertEqual([line for line in out if line.startswith(("malloc", "yields"))],
                         ["malloc 0", "malloc 0", "malloc 2", "yields 2 resident 2"])

    def test_from_outside(self):
        """vpmm stat, top and dump of a process with weights and no pool."""
        path = weights.model("seen", [3 << 20, 5 << 20, 7, 4 << 20, (6 << 20) + 1])
        command = [sys.executable, "-B", os.path.join(rig.HERE, "programs", "package.py"), path, "14MiB", "wait"]
        env = rig.environment(PYTHONPATH=os.path.join(rig.options.root, "python"), LD_PRELOAD=rig.options.shared_library)
        with subprocess.Popen(command, env=env, cwd=rig.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as process:
            while process.stdout.readline() != "ready\n":
                self.assertIsNone(process.poll())
            pid = process.pid
            stat, dump = (json.loads(rig.vpmm(what, pid, "--json").stdout) for what in ("stat", "dump"))
            top, text = rig.vpmm("top", "--once", pid).stdout, rig.vpmm("dump", pid).stdout
            process.communicate("\n")
        found, = stat["weights"]
        self.assertEqual(dump["weights"], [{key: found[key] for key in dump["weights"][0]}])
        self.assertEqual((found["budget_bytes"], found["passes"], found["device"]), (14 << 20, 4, 0))
        self.assertRegex(top, rf"\n *{pid} +0 weights 18.0M, held 1[234].\dM of 14.0M: resident .*, ring .*; hits \d+%, "
                              r"copied .*/s, passes/s ")
        self.assertIn("\nweights of device 0\n", text)
        self.assertIn("no device has a pool yet", text)

    def test_too_small(self):
        self.assertIn(f"floor {10 << 20} the budget of 4194304 bytes is too small", self.play("4MiB"))

    def test_not_loaded(self):
        self.assertIn("NotLoaded libvpmm.so is not preloaded", self.play("14MiB", preload=False))


if __name__ == "__main__":
    rig.main()
