# SPDX-License-Identifier: MIT
"""A small transformer trained by PyTorch on sequences of changing length, with deterministic algorithms on.

Prints every loss with all its digits and a checksum of all parameters. The allocator is chosen by the environment.
"""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

STEPS = 16
WIDTH, HEADS, LAYERS, WORDS = 768, 12, 4, 8192


class Model(nn.Module):
    """Words in, the next word's scores out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.scores(self.layers(self.words(text)))


def checksum(model: nn.Module) -> int:
    """The sum of all parameters' bits."""
    bits = (p.detach().view(torch.int32).to(torch.int64).sum() for p in model.parameters())
    return sum(int(b) for b in bits) % (1 << 64)


def main() -> None:
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    lengths = torch.randint(64, 512, (STEPS,), generator=torch.Generator().manual_seed(3)).tolist()
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    side = torch.cuda.Stream()
    print("backend", torch.cuda.get_allocator_backend())
    for step, length in enumerate(lengths):
        text = torch.randint(0, WORDS, (16, length + 1), device="cuda")
        scores = model(text[:, :-1])
        loss = nn.functional.cross_entropy(scores.reshape(-1, WORDS), text[:, 1:].reshape(-1))
        loss.backward()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = scores.detach().float() * 2
            copy.record_stream(torch.cuda.current_stream())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.current_stream().wait_stream(side)
        print(step, length, loss.item().hex(), copy.sum(dtype=torch.float64).item().hex())
        del scores, copy, loss
        if step % 6 == 5:
            torch.cuda.empty_cache()
    print("checksum", checksum(model))


main()
