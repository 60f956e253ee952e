# SPDX-License-Identifier: MIT
"""Two processes, one a device, add up tensors of several sizes with PyTorch and NCCL.

Prints every sum as a checksum, and as a measurement the bandwidth of an all-reduce of 256 MiB, counted as NCCL's own
tests do for two devices: the bytes of the tensor over the time. Argument "registered": the tensors come from a memory
pool that is registered with NCCL, where this PyTorch can do that.
"""
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

MIB = 1 << 20
SIZES = (1 * MIB, 16 * MIB + 4096, 64 * MIB, 256 * MIB)
ROUNDS, TIMED_BYTES = 12, 256 * MIB
GROUPS = 5  # of rounds, of which the median counts


def tensor(rank: int, n_bytes: int, turn: int) -> torch.Tensor:
    """Whole numbers, so that the order of additions does not matter."""
    base = torch.arange(n_bytes // 4, dtype=torch.int32, device=f"cuda:{rank}") % 1021
    return (base * (rank + 1) + turn).to(torch.float32)


def checksum(t: torch.Tensor) -> str:
    return t.sum(dtype=torch.float64).item().hex()


def sums(rank: int) -> None:
    for turn in range(3):
        for n_bytes in SIZES:
            t = tensor(rank, n_bytes, turn)
            dist.all_reduce(t)
            parts = [torch.empty_like(t) for _ in range(2)]
            dist.all_gather(parts, t * (rank + 1))
            text = f"{turn} {n_bytes} {checksum(t)} {' '.join(map(checksum, parts))}"
            half = torch.empty(t.numel() // 2, device=t.device)
            dist.reduce_scatter_tensor(half, t)
            others = [None, None]
            dist.all_gather_object(others, f"{text} {checksum(half)}")
            if rank == 0:
                for number, line in enumerate(others):
                    print("rank", number, line, flush=True)
            del t, parts, half
        torch.cuda.empty_cache()


def bandwidth(rank: int) -> None:
    t = torch.ones(TIMED_BYTES // 4, device=f"cuda:{rank}")
    for _ in range(5):
        dist.all_reduce(t)
    seconds = []
    for _ in range(GROUPS):
        t.fill_(1.0)
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(ROUNDS):
            dist.all_reduce(t)
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / ROUNDS)
    result = checksum(t)
    if rank == 0:
        print("timed", result, flush=True)
        print(f"# bandwidth_gb_s {TIMED_BYTES / statistics.median(seconds) / 1e9:.1f}", flush=True)


def registered(rank: int) -> "object | None":
    """The pool, kept as long as it is used; None where this PyTorch cannot."""
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device(f"cuda:{rank}"))
    try:
        pool = torch.cuda.MemPool(backend.mem_allocator)
        register = backend.register_mem_pool
    except (AttributeError, RuntimeError):
        return None
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.ones(n_bytes // 4, device=f"cuda:{rank}") for n_bytes in SIZES]
    register(pool)
    for t in kept:
        dist.all_reduce(t)
        if rank == 0:
            print("registered", t.numel(), checksum(t), flush=True)
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    del kept
    return pool


def work(rank: int, rendezvous: str, with_pool: bool) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=2,
                            device_id=torch.device(f"cuda:{rank}"))
    warm = torch.ones(1, device=f"cuda:{rank}")
    dist.all_reduce(warm)
    if with_pool:
        pool = registered(rank)
        if rank == 0:
            print("registration is", "not to be had" if pool is None else "to be had", flush=True)
        del pool
    sums(rank)
    bandwidth(rank)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(work, (os.path.join(folder, "rendezvous"), "registered" in sys.argv[1:]), nprocs=2)


if __name__ == "__main__":
    main()
