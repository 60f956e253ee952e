# SPDX-License-Identifier: MIT
"""PyTorch records steps of several shapes as CUDA graphs, replays them, and works outside of graphs in between.

Prints checksums only.
"""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch


def record(size: int) -> "tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor, torch.Tensor]":
    """A graph of a few products of square matrices, its input, its output, and the weight that it reads."""
    weight = torch.randn(size, size, device="cuda")
    given = torch.randn(size, size, device="cuda")

    def step() -> torch.Tensor:
        return torch.tanh(given @ weight / size**0.5) @ weight.t() + given

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, given, result, weight


def main() -> None:
    torch.manual_seed(11)
    torch.use_deterministic_algorithms(True)
    graphs = [record(size) for size in (512, 1024, 1536, 2304)]
    for turn in range(6):
        for graph, given, result, _ in graphs:
            given.copy_(torch.randn_like(given))
            graph.replay()
            outside = torch.empty(32 << 20, device="cuda").fill_(turn)
            total = result.sum(dtype=torch.float64).item()
            print(turn, result.shape[0], total.hex(), outside.sum().item())
            del outside
        torch.cuda.empty_cache()


main()
