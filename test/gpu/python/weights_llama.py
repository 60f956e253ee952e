# SPDX-License-Identifier: MIT
"""A Llama-shaped model by PyTorch: bare it is resident, and under the library its weights are larger than their budget.
Every output must have the same bits. Where transformers is installed, a model of it generates words, too.

Prints checksums, and measurements in lines that begin with '#'."""
import importlib.util
import os
import sys
import unittest
from pathlib import Path

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

TEST = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TEST.parent / "python"), str(TEST / "bench" / "python"), str(TEST / "python")]

import llama
import vpmm

SHAPE = llama.Shape(width=2048, wide=5632, layers=6, heads=16, key_heads=4, words=8000)
FILE, LENGTHS = "model.safetensors", (1, 17, 512)
DEVICE = "cuda"


def has_library():
    try:
        vpmm.native.table()
    except vpmm.NotLoaded:
        return False
    return True


def bits(tensor):
    """The sum of all bits."""
    return int(tensor.view(torch.int16).to(torch.int64).sum())


def texts():
    drawn = torch.Generator().manual_seed(2)
    return [torch.randint(0, SHAPE.words, (1, length), generator=drawn).to(DEVICE) for length in LENGTHS]


def show(name, model):
    """Words one by one after others, and whole texts."""
    with torch.no_grad():
        past = llama.past_of(SHAPE, 64, DEVICE)
        print(name, [bits(model(text[:, :1], past)) for text in texts()], [bits(model(text)) for text in texts()])


def graph(name, model):
    """A step of decoding as a CUDA graph, launched for several words."""
    given, past = texts()[1][:, :1].clone(), llama.past_of(SHAPE, 64, DEVICE)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(given, past)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        step = torch.cuda.CUDAGraph()
        with torch.cuda.graph(step, capture_error_mode="thread_local"):
            scores = model(given, past)
        found = []
        for word in range(20):
            given.fill_(word)
            step.replay()
            found.append(bits(scores))
        torch.cuda.synchronize()
    del step
    print(name, found)


# ---- with the library ----

def offloaded_passes():
    model = llama.empty(SHAPE)
    floor = floor_of()
    offloaded = vpmm.offload(model, floor, FILE)
    for share in (None, 25, 50, 75, 100):
        offloaded.budget(floor if share is None else max(floor, SHAPE.n_bytes * share // 100 + (8 << 20)))
        show("passes", model)
        graph("graph", model)
        offloaded.thaw()
        stats = offloaded.stats()
        assert stats["held_peak_bytes"] <= stats["budget_bytes"], stats
        print(f"# resident_mib_{share} {stats['resident_bytes'] >> 20}")
    print(f"# copied_gib {offloaded.stats()['copied_bytes'] / (1 << 30):.1f}")
    offloaded.close()


def floor_of():
    try:
        vpmm.offload(llama.empty(SHAPE), 4096, FILE)
    except vpmm.BudgetTooSmall as error:
        return error.floor
    raise AssertionError("4096 bytes were enough")


def planned_passes():
    """The plan of a program that was exported on the meta device, a checked pass, and weights read in host memory."""
    program = torch.export.export(llama.empty(SHAPE), (texts()[1].to("meta"),))
    plan = vpmm.plan(program).save("model.plan")
    for more in ({"plan": plan}, {"check": True}, {"direct": ["layers.1.mlp"]}):
        model = llama.empty(SHAPE)
        offloaded = vpmm.offload(model, "256MiB", FILE, **more)
        show("planned", model)
        offloaded.close()


def refused(kind, words, model, *more, **options):
    try:
        vpmm.offload(model, "1GiB", *(more or (FILE,)), **options)
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"not refused: {words}")


def refusals():
    other = llama.empty(SHAPE)
    other.lm_head = nn.Linear(SHAPE.width, 5, False, "meta", torch.bfloat16).requires_grad_(False)
    more = llama.empty(SHAPE)
    more.extra = nn.Linear(2048, 2048, device="meta").requires_grad_(False)
    refused(vpmm.BadSource, f"lm_head.weight: the model has the shape [5, {SHAPE.width}]", other)
    refused(vpmm.BadSource, "extra.weight: the source has no such weight", more)
    refused(vpmm.BadSource, "nowhere", llama.empty(SHAPE), "nowhere.safetensors")
    refused(vpmm.Unsupported, "embed_tokens.weight: it is trainable", llama.empty(SHAPE).requires_grad_(True))
    refused(vpmm.Unsupported, "DataParallel moves", nn.DataParallel(nn.Linear(8, 8).requires_grad_(False)))
    refused(vpmm.BadSource, "x: the plan reads it", llama.empty(SHAPE), plan=vpmm.Plan((("x",),), 0))
    model = llama.empty(SHAPE)
    offloaded = vpmm.offload(model, "256MiB", FILE)
    with torch.no_grad():
        model(texts()[0])
        try:
            model.layers[1](torch.zeros(1, 1, SHAPE.width, dtype=torch.bfloat16, device=DEVICE), None)
        except vpmm.Unsupported as error:
            assert ": its module was called by itself" in str(error), error
        else:
            raise AssertionError("a layer outside of a pass was not refused")
        model(texts()[0])
    offloaded.close()


# ---- transformers ----

def generate(is_offloaded):
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("safetensors") is None:
        print("transformers: not installed")
        return
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=4000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=6,
                         num_attention_heads=16, num_key_value_heads=4, dtype="bfloat16")
    torch.manual_seed(4)
    whole = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    text = torch.randint(0, 4000, (1, 30)).to(DEVICE)
    if is_offloaded:
        from safetensors.torch import save_file
        save_file(whole.state_dict(), "generated.safetensors")
        with vpmm.empty():
            model = LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)
        offloaded = vpmm.offload(model, "64MiB", "generated.safetensors")
        assert offloaded.stats()["resident_bytes"] < 64 << 20
    else:
        model = whole.to(DEVICE)
    with torch.no_grad():
        print("generated", model.generate(text, max_new_tokens=24, do_sample=False)[0].tolist())


def main():
    is_offloaded = has_library()
    torch.use_deterministic_algorithms(True)
    torch.cuda.init()
    llama.save(llama.empty(SHAPE), FILE)
    if is_offloaded:
        offloaded_passes()
        planned_passes()
        refusals()
    else:
        model = llama.resident(llama.empty(SHAPE), FILE, DEVICE)
        for _ in range(5):
            show("passes", model)
            graph("graph", model)
        for _ in range(3):
            show("planned", model)
    generate(is_offloaded)
    torch.use_deterministic_algorithms(False)
    good = unittest.TextTestRunner(stream=sys.stderr).run(
        unittest.defaultTestLoader.loadTestsFromNames(["test_models", "test_ends", "test_for_gpus"])).wasSuccessful()
    print("the package's own tests:", good)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
