# SPDX-License-Identifier: MIT
"""PyTorch's three ways to CUDA graphs: torch.cuda.graph, torch.cuda.make_graphed_callables, and torch.compile in its
mode reduce-overhead, which the arguments choose. Eager work of changing size goes on in between.

Prints checksums only. The allocator is chosen by the environment.
"""
import importlib.util
import os
import sys
import typing

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

WIDTH, ROWS, STEPS = 1536, 2048, 8


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)).cuda()


def batches() -> "list[torch.Tensor]":
    return [torch.randn(ROWS, WIDTH, device="cuda") for _ in range(STEPS)]


def bits(*tensors: torch.Tensor) -> int:
    """The sum of all bits."""
    return sum(int(t.detach().view(torch.int32).to(torch.int64).sum()) for t in tensors) % (1 << 64)


def meanwhile(step: int) -> None:
    """Work that is not in the graph, and an allocator that gives back what it keeps."""
    outside = torch.full(((step % 5 + 1) << 22,), float(step), device="cuda")
    print("outside", step, outside.sum(dtype=torch.float64).item())
    del outside
    if step % 3 == 2:
        torch.cuda.empty_cache()


def graph() -> None:
    """A whole training step as one graph, in the pool of another one."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    given = torch.zeros(ROWS, WIDTH, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            net(given).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    step_graph, look_graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(step_graph):
        loss = net(given).square().mean()
        loss.backward()
        optimizer.step()
    with torch.cuda.graph(look_graph, pool=step_graph.pool()):
        seen = net(given).sum(dtype=torch.float64)
    for step, batch in enumerate(batches()):
        given.copy_(batch)
        step_graph.replay()
        print("graph", step, loss.item().hex())
        look_graph.replay()
        print("look", step, seen.item().hex())
        meanwhile(step)
    print("checksum", bits(*net.parameters()))


def callables() -> None:
    net = model()
    sample = torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)
    net = torch.cuda.make_graphed_callables(net, (sample,))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step, batch in enumerate(batches()):
        optimizer.zero_grad(set_to_none=True)
        loss = net(batch.requires_grad_()).square().mean()
        loss.backward()
        optimizer.step()
        print("callable", step, loss.item().hex())
        meanwhile(step)
    print("checksum", bits(*net.parameters()))


def compiled() -> None:
    if importlib.util.find_spec("triton") is None:
        print("torch.compile: not tried: there is no triton")
        print("# skipped 1")
        meanwhile(0)
        return
    net = model()
    try:
        compiled_steps(net, torch.compile(net, mode="reduce-overhead"))
    except RuntimeError as error:  # not every allocator is known to it
        print("torch.compile refuses:", str(error).splitlines()[0])
        meanwhile(0)


def compiled_steps(net: nn.Module, step_of: "typing.Callable[[torch.Tensor], torch.Tensor]") -> None:
    with torch.no_grad():
        for step, batch in enumerate(batches()):
            torch.compiler.cudagraph_mark_step_begin()
            result = step_of(batch)
            print("compiled", step, result.sum(dtype=torch.float64).item().hex())
            meanwhile(step)
    for step, batch in enumerate(batches()):
        torch.compiler.cudagraph_mark_step_begin()
        loss = step_of(batch).square().mean()
        loss.backward()
        print("compiled, trained", step, loss.item().hex(), bits(*(p.grad for p in net.parameters())))
        net.zero_grad(set_to_none=True)


def main() -> None:
    torch.manual_seed(5)
    torch.use_deterministic_algorithms(True)
    print("backend", torch.cuda.get_allocator_backend())
    {"graph": graph, "callables": callables, "compiled": compiled}[sys.argv[1]]()


main()
