# SPDX-License-Identifier: MIT
"""PyTorch processes share CUDA tensors: a worker reads and changes what this process sends it, and sends tensors back.

Prints checksums only.
"""
import torch
import torch.multiprocessing as mp

SIZES = (1 << 20, 5 << 20, 24 << 20)  # of float32
ROUNDS = 4


def work(inbox: "mp.Queue", outbox: "mp.Queue", done: "mp.Event") -> None:
    """Doubles each tensor it is sent, in place, and answers with its sum and with a tensor of its own."""
    kept = []
    while True:
        tensor = inbox.get()
        if tensor is None:
            break
        total = tensor.sum(dtype=torch.float64).item()
        tensor.mul_(2)
        torch.cuda.synchronize()
        own = torch.full((tensor.numel(),), float(len(kept)), device="cuda")
        kept.append(own)
        outbox.put((total, own))
        del tensor
    done.wait()


def main() -> None:
    context = mp.get_context("spawn")
    inbox, outbox, done = context.Queue(), context.Queue(), context.Event()
    worker = context.Process(target=work, args=(inbox, outbox, done))
    worker.start()
    torch.manual_seed(5)
    for turn in range(ROUNDS):
        for size in SIZES:
            tensor = torch.randint(0, 100, (size,), device="cuda").float()
            torch.cuda.synchronize()
            inbox.put(tensor)
            total, theirs = outbox.get()
            print(turn, size, total, tensor.sum(dtype=torch.float64).item(), theirs.sum(dtype=torch.float64).item())
            del tensor, theirs
        torch.cuda.empty_cache()
    inbox.put(None)
    done.set()
    worker.join()
    print("the worker ended with", worker.exitcode)


if __name__ == "__main__":
    main()
