# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: training steps whose inputs are copied ahead on a stream of their own,
whose outputs are copied back on another one, and whose blocks are freed while those streams still use them. To be run
without PyTorch's cache, so that each tensor is a request: PYTORCH_NO_CUDA_MEMORY_CACHING=1 or backend:cudaMallocAsync."""
import argparse
import sys

import torch
from torch import nn
from torch.nn import functional

WIDTH = 1536


def layers(depth: int) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(depth) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


class Pipe:
    """Batches come in on one stream, are worked on by the current one, and go out on a third."""

    def __init__(self) -> None:
        self.ahead, self.back = torch.cuda.Stream(), torch.cuda.Stream()
        self.results = []

    def fetch(self, rows: int) -> torch.Tensor:
        host = torch.empty(rows, WIDTH, pin_memory=True).fill_(rows)
        with torch.cuda.stream(self.ahead):
            return host.to("cuda", non_blocking=True) * 0.5

    def receive(self, batch: torch.Tensor) -> torch.Tensor:
        current = torch.cuda.current_stream()
        current.wait_stream(self.ahead)
        batch.record_stream(current)
        return batch

    def send(self, scores: torch.Tensor) -> None:
        self.back.wait_stream(torch.cuda.current_stream())
        scores.record_stream(self.back)
        with torch.cuda.stream(self.back):
            wide = scores.float() * 2
            self.results.append(wide.sum(dim=1).to("cpu", non_blocking=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    torch.manual_seed(7)
    rows = torch.randint(512, 8192, (steps + 1,), generator=torch.Generator().manual_seed(5)).tolist()
    model = layers(6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    pipe = Pipe()
    following = pipe.fetch(rows[0])
    for number in range(steps):
        batch, following = pipe.receive(following), pipe.fetch(rows[number + 1])
        scores = model(batch)
        functional.mse_loss(scores, batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        pipe.send(scores.detach())
        del scores, batch
    torch.cuda.synchronize()
    print(f"steps,{len(pipe.results)},steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
