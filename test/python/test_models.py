# SPDX-License-Identifier: MIT
"""The part of the Python package that needs PyTorch, on the CPU: the object of weights is one in host memory, whose
streamed weights are poisoned outside of their use. Skipped where there is no PyTorch."""
import contextlib
import copy
import importlib.util
import inspect
import unittest
import warnings
from unittest import mock

from on_the_host import CPU, HostWeights, OnTheHost, models, save, streams, torch, vpmm

import llama
from torch import nn

SHAPE = llama.Shape(width=512, wide=1536, layers=3, heads=8, key_heads=4, words=3000)


class Llamas(OnTheHost):
    def setUp(self):
        super().setUp()
        self.model = llama.empty(SHAPE)
        self.file = llama.save(self.model, self.path())
        self.text = torch.randint(0, SHAPE.words, (2, 17))
        self.resident = llama.resident(llama.empty(SHAPE), self.file, CPU)
        self.expected = self.resident(self.text)

    def test_outputs_are_those_of_the_resident_model(self):
        offloaded = vpmm.offload(self.model, "1GiB", self.file)
        for _ in range(3):
            self.assertTrue(torch.equal(self.model(self.text), self.expected))
        self.assertTrue(self.expected.isfinite().all() and self.expected.std() > 0)
        self.assertEqual(offloaded.stats()["passes"], 3)
        self.assertTrue(self.model.lm_head.weight.isnan().any())  # outside of its use

    def test_a_plan_made_before_the_first_pass(self):
        program = torch.export.export(self.resident, (self.text,))
        path = vpmm.plan(program).save(self.path("model.plan"))
        offloaded = vpmm.offload(self.model, "1GiB", self.file, plan=path)
        given = offloaded.weights.recorded
        self.assertEqual(len(given), 2 + 7 * SHAPE.layers)
        self.assertTrue(torch.equal(self.model(self.text), self.expected))
        self.assertEqual(offloaded.weights.seen, given)

    def test_the_plan_of_a_program_without_weights(self):
        """Exported on the meta device: nothing is loaded for it."""
        program = torch.export.export(llama.empty(SHAPE), (self.text.to("meta"),))
        self.assertEqual(vpmm.plan(program), vpmm.plan(torch.export.export(self.resident, (self.text,))))

    def test_another_order_than_the_plans(self):
        plan = vpmm.plan(torch.export.export(self.resident, (self.text,)))
        steps = list(plan.steps)
        at = [i for i, step in enumerate(steps) if step[0].endswith("gate_proj.weight")][0]
        steps[at], steps[at + 1] = steps[at + 1], steps[at]
        offloaded = vpmm.offload(self.model, "1GiB", self.file, plan=vpmm.Plan(tuple(steps), plan.floor))
        with self.assertRaisesRegex(vpmm.OtherOrder, "layers.0.mlp.gate_proj.weight"):
            self.model(self.text)
        self.assertEqual(offloaded.weights.calls[-1], "cancel")

    def test_a_plan_with_a_weight_that_the_model_lacks(self):
        with self.assertRaisesRegex(vpmm.BadSource, "^x.weight: the plan reads it"):
            vpmm.offload(self.model, "1GiB", self.file, plan=vpmm.Plan((("x.weight",),), 0))

    def test_other_shapes_types_and_names_than_the_files(self):
        for change, words in (
                (lambda m: setattr(m.layers[1].mlp, "up_proj", nn.Linear(512, 7, False, "meta", torch.bfloat16)),
                 "layers.1.mlp.up_proj.weight: the model has the shape"),
                (lambda m: m.lm_head.to(torch.float16), "lm_head.weight: the model has it as F16"),
                (lambda m: setattr(m, "more", nn.Linear(512, 512, device="meta")), "more.weight: the source has no such")):
            model = llama.empty(SHAPE)
            change(model)
            with self.assertRaisesRegex(vpmm.BadSource, words):
                vpmm.offload(model.requires_grad_(False), "1GiB", self.file)

    def test_too_small_a_budget(self):
        with self.assertRaises(vpmm.BudgetTooSmall) as caught:
            vpmm.offload(self.model, 1000, self.file)
        self.assertGreater(caught.exception.floor, 1000)

    def test_an_old_pytorch(self):
        name = "register_load_state_dict_pre_hook"
        self.addCleanup(setattr, nn.Module, name, getattr(nn.Module, name))
        delattr(nn.Module, name)
        with self.assertRaisesRegex(vpmm.Unsupported, "^PyTorch .* is too old: 2.5 is needed"):
            vpmm.offload(self.model, "1GiB", self.file)

    def test_whatever_fails_closes_the_weights(self):
        for part, name in ((HostWeights, "add"), (HostWeights, "seal"), (models.Offloaded, "_guard")):
            weights = HostWeights("1GiB")
            with mock.patch.object(models, "Weights", return_value=weights), \
                    mock.patch.object(part, name, side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                vpmm.offload(llama.empty(SHAPE), "1GiB", self.file)
            self.assertTrue(weights.is_closed, name)

    def test_a_plan_that_streams_nothing(self):
        offloaded = vpmm.offload(self.model, "1GiB", self.file, keep=["layers", "lm_head", "embed_tokens"],
                                 plan=vpmm.Plan((("lm_head.weight",),), 0))
        self.assertIsNone(offloaded.weights.recorded)
        self.assertTrue(torch.equal(self.model(self.text), self.expected))

    def test_a_state_dict_has_the_bytes_of_the_file(self):
        vpmm.offload(self.model, "1GiB", self.file, keep=["lm_head"])
        for name, tensor in llama.tensors_of(self.resident, self.file).items():
            self.assertTrue(torch.equal(self.model.state_dict()[name], tensor), name)
        self.assertTrue(torch.equal(self.model.layers[0].mlp.state_dict()["up_proj.weight"],
                                    self.resident.layers[0].mlp.up_proj.weight))

    def test_windows_are_not_moved_or_written(self):
        offloaded = vpmm.offload(self.model, "1GiB", self.file)
        for attempt in (lambda: self.model.to(torch.float32), lambda: self.model.layers[0].cpu(),
                        lambda: self.model.load_state_dict(self.resident.state_dict()),
                        lambda: copy.deepcopy(self.model), lambda: copy.deepcopy(self.model.layers[0].mlp.up_proj)):
            with self.assertRaisesRegex(vpmm.Unsupported, "close"):
                attempt()
        offloaded.close()
        self.assertTrue(offloaded.weights.is_closed and self.model.lm_head.weight.is_meta)
        self.model.to(torch.float32)
        for module in self.model, self.model.layers[0].self_attn.q_proj:
            self.assertNotIn("forward", module.__dict__)

    def test_a_pass_that_fails_is_cancelled(self):
        offloaded = vpmm.offload(self.model, "1GiB", self.file)
        hook = self.model.layers[1].mlp.down_proj.register_forward_pre_hook(mock.Mock(side_effect=ZeroDivisionError))
        with self.assertRaises(ZeroDivisionError):
            self.model(self.text)
        hook.remove()
        self.assertTrue(torch.equal(self.model(self.text), self.expected))
        self.assertEqual(offloaded.weights.calls, ["begin", "cancel", "begin", "end"])

    def test_a_pass_that_is_interrupted_is_cancelled(self):
        """PyTorch calls no hook for what is no Exception, such as an interrupt by the user."""
        offloaded = vpmm.offload(self.model, "1GiB", self.file)
        hook = self.model.layers[1].mlp.down_proj.register_forward_pre_hook(mock.Mock(side_effect=KeyboardInterrupt))
        with self.assertRaises(KeyboardInterrupt):
            self.model(self.text)
        hook.remove()
        self.assertTrue(torch.equal(self.model(self.text), self.expected))
        self.assertEqual(offloaded.weights.calls, ["begin", "cancel", "begin", "end"])
    def test_keep_and_direct(self):
        offloaded = vpmm.offload(self.model, "1GiB", self.file, keep=["layers.0", "lm_head"], direct=["layers.2.mlp"])
        self.assertTrue(torch.equal(self.model(self.text), self.expected))
        kinds = {weight["name"]: weight["kind"] for weight in offloaded.weights.added}
        self.assertEqual([kinds[name] for name in ("layers.0.mlp.up_proj.weight", "layers.2.mlp.up_proj.weight",
                                                   "layers.1.mlp.up_proj.weight")],
                         [vpmm.KEPT, vpmm.DIRECT, vpmm.STREAMED])
        with self.assertRaisesRegex(vpmm.Unsupported, "layer: no weight of the model"):
            vpmm.offload(llama.empty(SHAPE), "1GiB", self.file, keep=["layer"])


class Tied(nn.Module):
    """The first and the last module share a weight, under two names."""

    def __init__(self):
        super().__init__()
        self.embed, self.middle, self.head = nn.Embedding(90, 40), nn.Linear(40, 40), nn.Linear(40, 90, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.arange(40.0), persistent=False)

    def forward(self, x):
        return self.head(self.middle(self.embed(x)) + self.table)


class Nested(nn.Module):
    """A weight of its own is read after that of a module inside it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(40, 40)
        self.own = nn.Parameter(torch.randn(40, 40))

    def forward(self, x):
        return self.inner(x) @ self.own


class Shapes(OnTheHost):
    def same(self, model, *inputs, **more):
        """Offloads a copy; its outputs over three passes are those of the model."""
        empty, offloaded = self.offload(model, **more)
        with torch.no_grad():
            for _ in range(3):
                self.assertTrue(torch.equal(empty(*inputs), model(*inputs)))
        return offloaded

    def test_tied_weights(self):
        x = torch.randint(0, 90, (3, 5))
        model = Tied()
        with self.assertRaisesRegex(vpmm.Unsupported, "table: it is on the meta device"):
            self.offload(model)
        for plan in (None, vpmm.plan(torch.export.export(model, (x,)))):
            empty = Tied().requires_grad_(False)
            offloaded = vpmm.offload(empty, "1GiB", save(model, self.path()), plan=plan)
            for _ in range(2):
                self.assertTrue(torch.equal(empty(x), model(x)))
            self.assertIs(empty.head.weight, empty.embed.weight)
            self.assertEqual(offloaded.weights.recorded, [0, 1, 0])
        kept = Tied().requires_grad_(False)
        offloaded = vpmm.offload(kept, "1GiB", self.path(), keep=["head"])
        self.assertEqual(offloaded.weights.added[0]["kind"], vpmm.KEPT)

    def test_nested_modules(self):
        model = nn.Sequential(Nested(), nn.Linear(40, 40))
        x = torch.randn(3, 40)
        self.same(model, x)
        self.same(model, x, plan=vpmm.plan(torch.export.export(model, (x,))))

    def test_attention_reads_the_weights_inside_it(self):
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2,
                                      enable_nested_tensor=False).eval()
        offloaded = self.same(model, torch.randn(2, 9, 64))
        names, = [group.names for group in offloaded.groups if group.module == "layers.1.self_attn"]
        self.assertEqual(names, [f"layers.1.self_attn.{name}" for name in (
            "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")])

    def test_a_recurrent_network(self):
        model = nn.LSTM(40, 48, num_layers=2, batch_first=True)
        empty, _ = self.offload(model)
        x = torch.randn(2, 9, 40)
        with torch.no_grad():
            for _ in range(2):
                self.assertTrue(torch.equal(empty(x)[0], model(x)[0]))

    def test_a_module_that_is_there_twice(self):
        one = nn.Linear(40, 40)
        self.same(nn.Sequential(one, nn.ReLU(), one), torch.randn(3, 40))

    def test_promoted_modules_tell_their_uses(self):
        """Of three experts two are used: each has a group of its own, and the heat is theirs."""
        class Mixture(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(40, 40)
                self.experts = nn.ModuleList(nn.Linear(40, 40) for _ in range(3))

            def forward(self, x):
                return self.experts[2](self.experts[0](self.first(x)))

        offloaded = self.same(Mixture(), torch.randn(1, 40), direct=["experts"], promote="1MiB")
        groups = {group.module: number for number, group in enumerate(offloaded.groups)}
        self.assertEqual(offloaded.weights.heat, {groups["experts.0"]: 3, groups["experts.2"]: 3})
        empty, offloaded = self.offload(Mixture(), direct=["experts"], promote="1MiB")
        offloaded.weights.all_bytes = 0
        empty(torch.randn(1, 40))
        self.assertEqual(offloaded.weights.heat, {groups["experts.0"]: 1, groups["experts.2"]: 1})
        offloaded = self.same(Mixture(), torch.randn(1, 40), direct=["experts"])
        self.assertEqual((offloaded.weights.heat, len(offloaded.groups)), ({}, 2))

    def test_a_weight_that_no_module_uses_is_told(self):
        class Direct(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(40, 40), nn.Linear(40, 40)

            def forward(self, x):
                return self.a(x) @ self.b.weight

        empty, _ = self.offload(Direct())
        with self.assertWarnsRegex(UserWarning, "b.weight: no module used it"):
            empty(torch.randn(1, 40))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            empty(torch.randn(1, 40))
        self.same(Direct(), torch.randn(1, 40), keep=["b"])

    def test_calls_are_made_on_the_models_device(self):
        """The current device may be another one, whose stream is another, too."""
        devices, asked = [None], []

        @contextlib.contextmanager
        def on(device):
            devices.append(device)
            yield
            devices.pop()

        def called(name):
            call = getattr(HostWeights, name)
            return lambda *arguments: (asked.append((devices[-1], name)), call(*arguments))[1]

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(torch.cuda, "device", on))
            stack.enter_context(mock.patch.object(streams, "current_device", lambda: 1))
            for name in ("begin", "use", "done", "end", "close"):
                stack.enter_context(mock.patch.object(HostWeights, name, called(name)))
            empty, offloaded = self.offload(nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)))
            empty(torch.randn(1, 40))
            offloaded.close()
        self.assertEqual(asked, [(CPU, name) for name in ("begin", *["use", "done"] * 2, "end", "close")])

    def test_a_budget_for_all_tells_no_uses(self):
        """But those on other streams, and it refuses modules that are called by themselves."""
        model, x = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)), torch.randn(1, 40)
        empty, offloaded = self.offload(model)
        told, streams_now = [], [0, 0, 0]
        offloaded.weights.use = lambda *arguments: told.append(arguments)
        offloaded.weights.done = lambda *_: None
        offloaded.weights.all_bytes = 0
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(torch.equal(empty(x), model(x)))
            self.assertEqual(told, [])
            with self.assertRaisesRegex(vpmm.Unsupported, "0.weight: its module was called by itself"):
                empty[0](x)
            with mock.patch.object(streams, "current_stream", lambda _: streams_now.pop(0) if streams_now else 7):
                empty(x)
            self.assertEqual(told, [(1, 7)])
        offloaded.weights.all_bytes = 1 << 62
        del offloaded.weights.use, offloaded.weights.done
        self.assertTrue(torch.equal(empty(x), model(x)))
        self.assertEqual(offloaded.weights.seen, [0, 1])

    def test_a_forward_of_the_programs_own(self):
        """It is called, its signature is what others see, and `close` puts it back."""
        model = nn.Sequential(nn.Linear(40, 40))
        source = save(model, self.path())
        inner, calls = model[0].forward, []

        def forward(input, scale=2):
            calls.append(scale)
            return scale * inner(input)

        model[0].forward = forward
        expected = model(torch.ones(40))
        offloaded = vpmm.offload(model.requires_grad_(False), "1GiB", source)
        self.assertTrue(torch.equal(model(torch.ones(40)), expected))
        self.assertEqual(list(inspect.signature(model[0].forward).parameters), ["input", "scale"])
        offloaded.close()
        self.assertIs(model[0].forward, forward)
        self.assertEqual(calls, [2, 2])

    def test_files_that_cannot_be_registered_are_told(self):
        with mock.patch.object(HostWeights, "staged", ["model.safetensors: no"], create=True), \
                self.assertWarnsRegex(UserWarning, "model.safetensors: no: its weights are read through buffers"):
            self.offload(nn.Linear(40, 40))

    def test_adapters_stay_the_programs_own(self):
        base = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40))
        source = save(base, self.path())
        base = base.requires_grad_(False)
        base.adapter = nn.Linear(40, 40)
        expected = base(torch.ones(40))
        offloaded = vpmm.offload(base, "1GiB", source)
        out = base(torch.ones(40))
        out.sum().backward()
        self.assertTrue(torch.equal(out, expected) and base.adapter.weight.grad is not None)
        self.assertNotIn("adapter.weight", [weight["name"] for weight in offloaded.weights.added])


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class Transformers(OnTheHost):
    def models(self, **more):
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(vocab_size=200, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, **more)
        with vpmm.empty():
            empty = LlamaForCausalLM(config).eval().requires_grad_(False)
        self.assertTrue(empty.model.layers[0].mlp.up_proj.weight.is_meta)
        return LlamaForCausalLM(config).eval(), empty

    def test_generation(self):
        for is_tied in (False, True):
            model, other = self.models(tie_word_embeddings=is_tied)
            offloaded = vpmm.offload(other, "1GiB", save(model, self.path()))
            text = torch.randint(0, 200, (1, 7))
            expected = model.generate(text, max_new_tokens=6, do_sample=False)
            self.assertEqual(other.generate(text, max_new_tokens=6, do_sample=False).tolist(), expected.tolist())
            self.assertEqual(offloaded.stats()["passes"], 6)


class Refusals(OnTheHost):
    def refused(self, model, words, **more):
        source = save(model, self.path())
        with self.assertRaisesRegex(vpmm.Unsupported, words):
            vpmm.offload(model, "1GiB", source, **more)

    def test_trainable(self):
        model = nn.Linear(40, 40).to("meta")
        with self.assertRaisesRegex(vpmm.Unsupported, "^weight: it is trainable"):
            vpmm.offload(model, "1GiB", "nowhere")

    def test_wrappers(self):
        self.refused(nn.Sequential(torch.compile(nn.Linear(40, 40))).requires_grad_(False), "^0: OptimizedModule")
        self.refused(nn.DataParallel(nn.Linear(40, 40)).requires_grad_(False), "^the model: DataParallel")

    def test_types(self):
        model = nn.Linear(40, 40, dtype=torch.complex128, device="meta").requires_grad_(False)
        with self.assertRaisesRegex(vpmm.Unsupported, "^weight: weights of torch.complex128"):
            vpmm.offload(model, "1GiB", "nowhere")

    def test_no_device(self):
        mock.patch.stopall()
        with mock.patch.object(torch.cuda, "is_available", lambda: False), \
                mock.patch.object(models, "cuda_device", REAL_DEVICE):
            with self.assertRaisesRegex(vpmm.Unsupported, "no CUDA device"):
                vpmm.offload(nn.Linear(4, 4), "1GiB", "nowhere")


REAL_DEVICE = models.cuda_device

if __name__ == "__main__":
    unittest.main()
