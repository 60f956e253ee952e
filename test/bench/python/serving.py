# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: a language model serves requests that come and go. Those that run make
a word each in every step. The keys and values of each lie in a buffer of their own in each layer, which grows by chunks. When
too much is cached, the youngest request loses its cache and is computed anew later."""
import math
import sys
from dataclasses import dataclass, field

import scale
import torch
from torch import nn
from torch.nn import functional

CHUNK = 64  # words by which a buffer grows


class Layer(nn.Module):
    def __init__(self, width, heads, key_heads):
        super().__init__()
        self.heads, self.key_heads, self.head = heads, key_heads, width // heads
        self.queries, self.mix = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, 2 * key_heads * self.head, bias=False)
        self.wide, self.narrow = nn.Linear(width, 3 * width, bias=False), nn.Linear(3 * width, width, bias=False)

    def ask(self, x):
        """Queries (rows, heads, length, head), and keys with values (2, rows, key heads, length, head)."""
        rows, length, _ = x.shape
        x = functional.layer_norm(x, x.shape[-1:])
        queries = self.queries(x).view(rows, length, self.heads, self.head).transpose(1, 2)
        return queries, self.keys(x).view(rows, length, 2, self.key_heads, self.head).permute(2, 0, 3, 1, 4)

    def answer(self, x, queries, cached, mask):
        keys, values = (part.repeat_interleave(self.heads // self.key_heads, dim=1) for part in cached)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, mask, is_causal=mask is None)
        x = x + self.mix(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.silu(self.wide(functional.layer_norm(x, x.shape[-1:]))))


@dataclass
class Request:
    text: torch.Tensor  # on the host
    missing: int  # words that are still to be made
    length: int = 0  # words that are cached
    caches: list = field(default_factory=list)  # of each layer: (2, key heads, room, head)

    def add(self, layer, keys):
        """Caches keys and values of new words, (2, key heads, words, head)."""
        until = self.length + keys.shape[2]
        if layer == len(self.caches):
            self.caches.append(keys.new_empty(*keys.shape[:2], 0, keys.shape[3]))
        if until > self.caches[layer].shape[2]:
            grown = keys.new_empty(*keys.shape[:2], -(-until // CHUNK) * CHUNK, keys.shape[3])
            grown[:, :, :self.length] = self.caches[layer][:, :, :self.length]
            self.caches[layer] = grown
        self.caches[layer][:, :, self.length:until] = keys


def prefill(layers, table, request):
    """Computes the request's whole text, and caches it."""
    x = table(request.text.to(table.weight.device))[None]
    for number, layer in enumerate(layers):
        queries, keys = layer.ask(x)
        request.add(number, keys[:, 0])
        x = layer.answer(x, queries, keys, None)
    request.length = len(request.text)


def decode(layers, table, running):
    """Makes a word for each running request; their caches are put side by side, padded to the longest."""
    device, longest = table.weight.device, max(request.length for request in running) + 1
    lengths = torch.tensor([request.length for request in running], device=device)
    mask = (torch.arange(longest, device=device) <= lengths[:, None])[:, None, None]
    x = table(torch.stack([request.text[-1] for request in running]).to(device))[:, None]
    for number, layer in enumerate(layers):
        queries, keys = layer.ask(x)
        padded = x.new_zeros(2, len(running), layer.key_heads, longest, layer.head)
        for row, request in enumerate(running):
            request.add(number, keys[:, row])
            padded[:, row, :, :request.length + 1] = request.caches[number][:, :, :request.length + 1]
        x = layer.answer(x, queries, padded, mask)
    words = functional.linear(x[:, 0], table.weight).argmax(dim=1).cpu()
    for request, word in zip(running, words):
        request.text, request.length, request.missing = torch.cat((request.text, word[None])), request.length + 1, \
            request.missing - 1


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    torch.manual_seed(scale.SEED)
    width, heads, key_heads, words, longest = world.of((4096, 32, 8, 32000, 6000), (64, 4, 2, 100, 300))
    most, cached_most, steps = world.of((12, 26000, 200), (4, 500, 60))
    with torch.device(world.device):
        table = nn.Embedding(words, width).bfloat16().requires_grad_(False)
        layers = [Layer(width, heads, key_heads).bfloat16().requires_grad_(False) for _ in range(world.of(4, 2))]
    waiting, running, served, made = [], [], 0, 0
    for _ in range(steps):
        if world.random.random() < 0.35:
            length = int(math.exp(world.random.uniform(math.log(16), math.log(longest))))
            waiting.append(Request(torch.randint(words, (length,)), world.random.randint(10, 120)))
        while waiting and len(running) < most and \
                sum(r.length for r in running) + len(waiting[0].text) <= cached_most:
            running.append(waiting.pop(0))
            prefill(layers, table, running[-1])
        if running:
            made += len(running)
            decode(layers, table, running)
        served += sum(request.missing == 0 for request in running)
        running = [request for request in running if request.missing]
        while len(running) > 1 and sum(request.length for request in running) > cached_most:
            youngest = running.pop()
            waiting.insert(0, Request(youngest.text, youngest.missing))
    return scale.finish(made, served + float(sum(int(r.text[-1]) for r in running)))


if __name__ == "__main__":
    sys.exit(main())
