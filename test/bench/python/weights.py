# SPDX-License-Identifier: MIT
"""weights.py WAY GIB FOLDER: a Llama-shaped model with random weights of about so many GiB, decoded and prefilled with a
part of its weights on the device. WAY: resident, ring (two layers, written by hand for this model), accelerate
(dispatch_model), or vpmm. The file of the weights is made in FOLDER where it is not there yet.

Prints figures as lines "name,value,unit". A figure's last word is the budget in percent of the weights, or "floor".
`bound` is the time in which the link carries what the budget has no room for; `attainable` has the ring's bytes beside
that, which cannot be resident. `--small` is for a look without a GPU."""
import argparse
import importlib.util
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent.parent / "python"))

import llama

SHARES = (75, 50, 25)
PAST_WORDS, PREFILL_WORDS = 512, 16384
BALANCED_WORDS = 5000  # computing them takes about as long as copying half of the weights, whatever the model's size
LINK_BYTES, TURNS = 1 << 30, 8


class Bench:
    """A device, a model's shape and file, and how its passes are timed."""

    def __init__(self, options):
        self.options, self.is_cuda = options, not options.small
        self.device = "cuda" if self.is_cuda else "cpu"
        self.shape = llama.shape_of(options.gib)
        self.path = os.path.join(options.folder, f"llama-{self.shape.n_bytes}.safetensors")
        start = time.perf_counter()
        os.makedirs(options.folder, exist_ok=True)
        llama.save(llama.empty(self.shape), self.path, self.device)
        self.figure("file_made", (time.perf_counter() - start) * 1e9, "ns")
        self.past = llama.past_of(self.shape, PAST_WORDS if self.is_cuda else 8, self.device)
        n = PREFILL_WORDS if self.is_cuda else 32
        drawn = torch.Generator().manual_seed(3)
        self.text = torch.randint(0, self.shape.words, (1, n), generator=drawn).to(self.device)
        self.link = self.link_bytes_a_second()
        self.figure("weights", self.shape.n_bytes, "bytes")
        self.figure("link", self.link / 1e9, "GB/s")
        self.figure("carry", self.shape.n_bytes / self.link * 1e9, "ns")

    @staticmethod
    def figure(name, value, unit):
        print(f"{name},{value:.9g},{unit}", flush=True)

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def times(self, call, n, warm=2):
        """Nanoseconds of each call, after some that are not counted."""
        found = []
        for i in range(warm + n):
            self.synchronize()
            start = time.perf_counter()
            call()
            self.synchronize()
            if i >= warm:
                found.append((time.perf_counter() - start) * 1e9)
        return found

    def link_bytes_a_second(self):
        n_bytes = LINK_BYTES if self.is_cuda else 1 << 20
        host = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=self.is_cuda)
        there = torch.empty(n_bytes, dtype=torch.uint8, device=self.device)
        return n_bytes / min(self.times(lambda: there.copy_(host, non_blocking=True), 5)) * 1e9

    def measure(self, model, name, ring_bytes=0, resident_bytes=None, prefills=3):
        """Decoding one word and prefilling, with so many bytes of weights on the device, the ring's not among them."""
        with torch.no_grad():
            decode = statistics.median(self.times(lambda: model(self.text[:, :1], self.past), self.options.decodes))
            self.figure(f"decode_{name}", decode, "ns")
            if prefills:
                prefill = statistics.median(self.times(lambda: model(self.text), prefills, warm=1))
                self.figure(f"prefill_{name}", prefill, "ns")
        if resident_bytes is not None:
            missing = max(0, self.shape.n_bytes - resident_bytes)
            bound = max(0, missing - ring_bytes) / self.link * 1e9
            self.figure(f"bound_{name}", bound, "ns")
            self.figure(f"attainable_{name}", missing / self.link * 1e9, "ns")
            self.figure(f"share_{name}", bound / decode, "")
            if bound:
                self.figure(f"over_bound_{name}", decode / bound, "")

    def balanced(self, model, n=7, warm=2):
        """The time of a pass whose computing takes about as long as copying half of the weights."""
        with torch.no_grad():
            return statistics.median(self.times(lambda: model(self.text[:, :BALANCED_WORDS]), n, warm))

    def score(self, model):
        """The same for every way: that the right weights were used."""
        with torch.no_grad():
            scores = model(self.text[:, :100])
        self.figure("check", int(scores.view(torch.int16).to(torch.int64).sum()), "bits")


# ---- resident ----

def resident(bench):
    model = llama.resident(llama.empty(bench.shape), bench.path, bench.device)
    bench.measure(model, "resident")
    bench.figure("balanced_resident", bench.balanced(model), "ns")
    bench.score(model)


# ---- a ring by hand ----

class Ring:
    """Some layers are resident; the others are copied into one of two places each while the layer before computes. Every
    streamed layer is one pinned block, and all layers are alike."""

    def __init__(self, bench, n_resident):
        self.bench, shape = bench, bench.shape
        self.model = llama.empty(shape)
        weights = llama.tensors_of(self.model, bench.path)
        streamed = spread(shape.layers, shape.layers - n_resident)
        for name, tensor in weights.items():
            if not name.startswith("layers.") or int(name.split(".")[1]) not in streamed:
                put(self.model, name, tensor.to(bench.device))
        self.names = [name for name in weights if name.startswith("layers.0.")]
        self.names = [name.removeprefix("layers.0.") for name in self.names]
        self.blocks = {layer: pinned(bench, [weights[f"layers.{layer}.{name}"] for name in self.names])
                       for layer in sorted(streamed)}
        size = max((block.numel() for block in self.blocks.values()), default=0)
        self.places = [torch.empty(size, dtype=torch.uint8, device=bench.device) for _ in range(2 if streamed else 0)]
        for turn, layer in enumerate(self.blocks):
            self.show(layer, weights, self.places[turn % 2])
            module = self.model.layers[layer]
            module.register_forward_pre_hook(lambda *_, turn=turn: self.before(turn))
            module.register_forward_hook(lambda *_, turn=turn: self.after(turn))
        self.order = list(self.blocks)
        if bench.is_cuda and streamed:
            self.copies = torch.cuda.Stream()
            self.arrived = [torch.cuda.Event() for _ in range(2)]
        for turn in range(len(self.places)):
            self.fetch(turn)

    @property
    def ring_bytes(self):
        return sum(place.numel() for place in self.places)

    @property
    def resident_bytes(self):
        return self.bench.shape.n_bytes - sum(block.numel() for block in self.blocks.values())

    def show(self, layer, weights, place):
        at = 0
        for name in self.names:
            like = weights[f"layers.{layer}.{name}"]
            n_bytes = like.numel() * 2
            put(self.model, f"layers.{layer}.{name}", place[at:at + n_bytes].view(like.dtype).view(like.shape))
            at += n_bytes

    def fetch(self, turn):
        block = self.blocks[self.order[turn % len(self.order)]]
        if not self.bench.is_cuda:
            self.places[turn % 2].copy_(block)
            return
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            self.places[turn % 2].copy_(block, non_blocking=True)
            self.arrived[turn % 2].record()

    def before(self, turn):
        if self.bench.is_cuda:
            torch.cuda.current_stream().wait_event(self.arrived[turn % 2])

    def after(self, turn):
        self.fetch(turn + 2)


def put(model, name, tensor):
    module, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(module), leaf, torch.nn.Parameter(tensor, requires_grad=False))


def spread(n, n_streamed):
    """So many of n layers, evenly apart. An even number, because two places alternate from pass to pass."""
    n_streamed += 0 if n_streamed % 2 == 0 else 1 if n_streamed < n else -1
    return {i * n // n_streamed for i in range(n_streamed)} if n_streamed else set()


def pinned(bench, tensors):
    block = torch.empty(sum(tensor.numel() * 2 for tensor in tensors), dtype=torch.uint8, pin_memory=bench.is_cuda)
    at = 0
    for tensor in tensors:
        block[at:at + tensor.numel() * 2].copy_(tensor.reshape(-1).view(torch.uint8))
        at += tensor.numel() * 2
    return block


def ring(bench):
    left = bench.shape.n_bytes // 2 - (bench.shape.n_bytes - bench.shape.layers * bench.shape.layer_bytes)
    made = Ring(bench, max(0, left // bench.shape.layer_bytes - 2))
    bench.measure(made.model, "50", made.ring_bytes, made.resident_bytes)
    bench.figure("budget", made.ring_bytes + made.resident_bytes, "bytes")
    bench.score(made.model)


# ---- accelerate ----

def accelerate(bench):
    if importlib.util.find_spec("accelerate") is None:
        bench.figure("absent", 1, "packages")
        return
    from accelerate import dispatch_model
    model = llama.empty(bench.shape)
    for name, tensor in llama.tensors_of(model, bench.path).items():
        put(model, name, tensor)
    budget, places = bench.shape.n_bytes // 2, {}
    for name, module in [("embed_tokens", model.embed_tokens), ("norm", model.norm), ("lm_head", model.lm_head),
                         *((f"layers.{i}", layer) for i, layer in enumerate(model.layers))]:
        budget -= sum(tensor.numel() * 2 for tensor in module.parameters())
        places[name] = 0 if budget >= 0 and bench.is_cuda else "cpu"
    main = 0 if bench.is_cuda else "cpu"
    model = dispatch_model(model, places, main_device=main, force_hooks=bench.is_cuda)
    bench.options.decodes = min(bench.options.decodes, 4)
    bench.measure(model, "50", prefills=1)
    bench.score(model)


# ---- vpmm ----

def budgets(bench, floor):
    return [(str(share), max(floor, bench.shape.n_bytes * share // 100)) for share in SHARES] + [("floor", floor)]


def floor_of(bench):
    import vpmm
    try:
        vpmm.offload(llama.empty(bench.shape), 4096, bench.path)
    except vpmm.BudgetTooSmall as error:
        return error.floor
    raise AssertionError("4096 bytes were enough")


def vpmm_way(bench):
    import vpmm
    floor, model = floor_of(bench), llama.empty(bench.shape)
    bench.figure("weights", bench.shape.n_bytes, "bytes")
    start = time.perf_counter()
    offloaded = vpmm.offload(model, bench.shape.n_bytes // 2, bench.path)
    with torch.no_grad():
        model(bench.text[:, :1], bench.past)
    bench.synchronize()
    bench.figure("first", (time.perf_counter() - start) * 1e9, "ns")
    for name, budget in budgets(bench, floor):
        offloaded.budget(budget)
        stats = offloaded.stats()
        bench.measure(model, name, stats["ring_bytes"], stats["resident_bytes"])
        after = offloaded.stats()
        if after["vmm_calls"] != stats["vmm_calls"] and after["ring_bytes"] == stats["ring_bytes"]:
            raise AssertionError("a steady pass took or mapped memory")
        bench.figure(f"budget_{name}", budget, "bytes")
        bench.figure(f"ring_{name}", after["ring_bytes"], "bytes")
    balance(bench, offloaded, model)
    bench.score(model)
    graph(bench, offloaded, model)
    offloaded.budget(2 * bench.shape.n_bytes)
    beside_resident(bench, model)
    bench.figure("host", offloaded.stats()["host_bytes"], "bytes")


def balance(bench, offloaded, model):
    """Passes that compute for about as long as they copy: before the ring has room for a second group, and after."""
    offloaded.budget(bench.shape.n_bytes // 2)
    for name, warm in (("balanced_narrow", 2), ("balanced_50", 12)):
        value, stats = bench.balanced(model, warm=warm), offloaded.stats()
        missing = bench.shape.n_bytes - stats["resident_bytes"]
        bench.figure(name, value, "ns")
        bench.figure(f"ring_{name}", stats["ring_bytes"], "bytes")
        bench.figure(f"attainable_{name}", missing / bench.link * 1e9, "ns")


def beside_resident(bench, model):
    """Decoding with all weights on the device and with a resident model, in turn: the host's part of a pass differs
    more between two processes than the two do."""
    alike, found = llama.resident(llama.empty(bench.shape), bench.path, bench.device), {"all": [], "resident": []}
    with torch.no_grad():
        for _ in range(TURNS):
            for name, one in (("all", model), ("resident", alike)):
                found[name] += bench.times(lambda one=one: one(bench.text[:, :1], bench.past), bench.options.decodes)
    for name, values in found.items():
        bench.figure(f"decode_{name}", statistics.median(values), "ns")


def graph(bench, offloaded, model):
    """Decoding at half of the weights as a CUDA graph: the host's part of a pass is gone."""
    if not bench.is_cuda:
        return
    offloaded.budget(bench.shape.n_bytes // 2)
    with torch.no_grad():
        model(bench.text[:, :1], bench.past)
        torch.cuda.synchronize()
        step = torch.cuda.CUDAGraph()
        with torch.cuda.graph(step, capture_error_mode="thread_local"):
            model(bench.text[:, :1], bench.past)
        bench.figure("decode_graph_50", statistics.median(bench.times(step.replay, bench.options.decodes)), "ns")
    del step
    offloaded.thaw()


WAYS = {"resident": resident, "ring": ring, "accelerate": accelerate, "vpmm": vpmm_way}


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("gib", type=float)
    parser.add_argument("folder")
    parser.add_argument("--decodes", type=int, default=12, help="that are timed, at each budget (%(default)s)")
    parser.add_argument("--small", action="store_true", help="on the CPU")
    return parser.parse_args(words)


def main(words):
    options = parse(words)
    if not options.small and not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        return 1
    bench = Bench(options)
    WAYS[options.way](bench)
    print("@held", flush=True)
    sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
