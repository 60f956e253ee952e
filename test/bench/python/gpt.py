# SPDX-License-Identifier: MIT
"""A GPT of 0.7 billion parameters trained by PyTorch on sequences of changing length. The allocator is chosen by the
environment. Prints figures as lines "name,value,unit".

Every step has about as many tokens, in rows of a length drawn from a seeded generator. `--small` is for a look without a
GPU."""
import argparse
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WORDS, LENGTHS = 32000, (256, 2048)


class Block(nn.Module):
    """Attention and a wide layer, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_wide = nn.LayerNorm(width), nn.LayerNorm(width)
        self.keys, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.keys(self.before_attention(x)).split(width, dim=2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.before_wide(x))))


class Gpt(nn.Module):
    """Words in, the next word's scores out, by the same table."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text)
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.last(x), self.words.weight)


def step(model: Gpt, optimizer: torch.optim.Optimizer, text: torch.Tensor) -> None:
    scores = model(text[:, :-1])
    loss = functional.cross_entropy(scores.reshape(-1, WORDS).float(), text[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    # Chosen so that the peak of all tensors is about 42 GiB.
    parser.add_argument("--tokens", type=int, default=33500, help="of a step, at most")
    parser.add_argument("--small", action="store_true", help="a tiny model on the CPU")
    return parser.parse_args()


def main() -> int:
    options = parse()
    is_cuda = not options.small
    if is_cuda and not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        return 1
    torch.manual_seed(7)
    device = "cuda" if is_cuda else "cpu"
    synchronize = torch.cuda.synchronize if is_cuda else (lambda: None)
    width, layers, heads = (2048, 12, 16) if is_cuda else (64, 2, 2)
    tokens = options.tokens if is_cuda else 2048
    with torch.device(device):
        model = Gpt(width, layers, heads).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    drawn = torch.Generator().manual_seed(3)
    times_ms = []
    for _ in range(options.steps):
        length = int(torch.randint(LENGTHS[0], LENGTHS[1] + 1, (1,), generator=drawn))
        text = torch.randint(0, WORDS, (tokens // length, length + 1), generator=drawn).to(device)
        synchronize()
        start = time.perf_counter()
        step(model, optimizer, text)
        synchronize()
        times_ms.append((time.perf_counter() - start) * 1e3)
    print(f"step,{statistics.median(times_ms) * 1e6:.9g},ns")
    print(f"step_max,{max(times_ms) * 1e6:.9g},ns")
    print(f"parameters,{sum(p.numel() for p in model.parameters())},parameters")
    # PyTorch asks the driver's pool, which knows nothing of what another one serves.
    if is_cuda and torch.cuda.max_memory_allocated() > sum(p.nbytes for p in model.parameters()):
        print(f"live_peak,{torch.cuda.max_memory_allocated()},bytes")
        print(f"reserved_peak,{torch.cuda.max_memory_reserved()},bytes")
    print("@held", flush=True)
    sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
