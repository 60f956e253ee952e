# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: a frozen model is adapted to several tasks in turn. Each task has narrow
matrices of its own beside those of the model, texts of its own length, and an optimizer. Whenever the task changes, the
adapter before goes to the host with its optimizer's state, and the next one comes; then it is tried with its product added to
the model's weights."""
import sys

import scale
import torch
from torch import nn
from torch.nn import functional

ADAPTED = ("queries", "keys", "wide", "narrow")


class Adapter:
    """Two narrow matrices beside each adapted one. Lives on the host, except while it is in use."""

    def __init__(self, model, rank):
        self.pairs = {}
        for number, layer in enumerate(model):
            for name in ADAPTED:
                n_out, n_in = layer[name].shape
                self.pairs[number, name] = (nn.Parameter(torch.randn(rank, n_in) * 0.02), nn.Parameter(torch.zeros(n_out, rank)))
        self.optimizer = torch.optim.AdamW([part for pair in self.pairs.values() for part in pair], lr=1e-3)

    def move(self, device):
        for part in (part for pair in self.pairs.values() for part in pair):
            part.data = part.data.to(device)
            state = self.optimizer.state[part]
            state.update({name: value.to(device) for name, value in state.items() if name.startswith("exp_avg")})


def product(x, weight, pair):
    y = functional.linear(x, weight)
    if pair is None:
        return y
    narrow, wide = (part.to(x.dtype) for part in pair)
    return y + functional.linear(functional.linear(x, narrow), wide) * 0.5


def run(model, heads, pairs, text):
    """The scores of each next word; `pairs` are of the adapter, or empty."""
    x = functional.embedding(text, model[0]["words"])
    rows, length, width = x.shape
    for number, layer in enumerate(model):
        normed = functional.layer_norm(x, (width,))
        queries = product(normed, layer["queries"], pairs.get((number, "queries")))
        keys = product(normed, layer["keys"], pairs.get((number, "keys")))
        parts = [part.view(rows, length, heads, -1).transpose(1, 2) for part in (queries, *keys.chunk(2, dim=2))]
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + functional.linear(mixed.transpose(1, 2).reshape(x.shape), layer["mix"])
        wide = functional.gelu(product(functional.layer_norm(x, (width,)), layer["wide"], pairs.get((number, "wide"))))
        x = x + product(wide, layer["narrow"], pairs.get((number, "narrow")))
    return functional.linear(functional.layer_norm(x, (width,)), model[0]["words"])


def make(world, width, n_layers, n_words):
    """The frozen model: matrices by their names, in each layer."""
    shapes = {"queries": (width, width), "keys": (2 * width, width), "mix": (width, width), "wide": (4 * width, width),
              "narrow": (width, 4 * width)}
    with torch.device(world.device):
        model = [{name: (torch.randn(shape) * 0.02).bfloat16() for name, shape in shapes.items()} for _ in range(n_layers)]
        model[0]["words"] = (torch.randn(n_words, width) * 0.02).bfloat16()
    return model


def learn(model, heads, adapter, text):
    scores = run(model, heads, adapter.pairs, text)
    loss = functional.cross_entropy(scores[:, :-1].flatten(0, 1).float(), text[:, 1:].flatten())
    loss.backward()
    adapter.optimizer.step()
    adapter.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


@torch.no_grad()
def try_merged(model, heads, adapter, text):
    """The scores' mean with the adapter's products in a copy of the adapted weights."""
    merged = [dict(layer) for layer in model]
    for (number, name), (narrow, wide) in adapter.pairs.items():
        merged[number][name] = model[number][name] + (wide @ narrow).bfloat16() * 0.5
    return run(merged, heads, {}, text).float().mean()


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    torch.manual_seed(scale.SEED)
    width, n_layers, heads, n_words, tokens = world.of((2048, 10, 16, 32000, 8192), (64, 2, 4, 100, 256))
    model = make(world, width, n_layers, n_words)
    # Of each task: its adapter, and how long its texts are.
    tasks = [(Adapter(model, rank), length // world.of(1, 32))
             for rank, length in ((8, 256), (64, 1024), (16, 2048), (128, 512), (32, 3072))]
    total, turns = torch.zeros((), device=world.device), world.of(8, 6)
    for turn in range(turns):
        adapter, length = tasks[turn % len(tasks)]
        adapter.move(world.device)
        for _ in range(world.random.randint(3, 6)):
            most = int(length * world.random.uniform(0.5, 1.0))
            text = torch.randint(n_words, (max(1, tokens // most), most)).to(world.device)
            total += learn(model, heads, adapter, text)
        total += try_merged(model, heads, adapter, torch.randint(n_words, (2, 2 * length)).to(world.device))
        adapter.move("cpu")
    return scale.finish(turns, float(total))


if __name__ == "__main__":
    sys.exit(main())
