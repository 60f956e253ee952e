# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: one rank of a training whose weights are split among all ranks. A layer's
weights are gathered ahead on a stream of their own, used, and freed; on the way back they are gathered again, and the
gradients are summed to the rank's own part. What other ranks would send is copied from this one's part."""
import contextlib
import sys

import scale
import torch
from torch.nn import functional

RANKS = 8


class Side:
    """A stream beside the current one; without CUDA there is none, and everything is in order."""

    def __init__(self, device):
        self.stream = torch.cuda.Stream() if device == "cuda" else None

    def run(self, work, *tensors):
        """Does the work there, behind what the current stream has been given, and keeps its tensors until it is done."""
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream())
            for tensor in tensors:
                tensor.record_stream(self.stream)
        with torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext():
            return work(*tensors)

    def receive(self, tensor):
        """Has the current stream wait for what was made there."""
        if self.stream:
            torch.cuda.current_stream().wait_stream(self.stream)
            tensor.record_stream(torch.cuda.current_stream())
        return tensor


class Layer:
    """A rank's part of the weights of one layer, and of its optimizer's state."""

    def __init__(self, shapes, device):
        self.shapes = shapes
        self.n_all = sum(n_out * n_in for n_out, n_in in shapes)
        part = -(-self.n_all // RANKS)
        self.part = (torch.randn(part, device=device) * 0.02).bfloat16()
        self.state = [torch.zeros(part, device=device) for _ in range(2)]

    @staticmethod
    def gather(part):
        return part.new_empty(RANKS, len(part)).copy_(part).view(-1)

    def scatter(self, gradient):
        """The sum over all ranks of this rank's part."""
        padded = functional.pad(gradient, (0, len(self.part) * RANKS - len(gradient)))
        return padded.view(RANKS, -1).float().sum(dim=0) / RANKS

    def weights(self, flat):
        views = flat[:self.n_all].split([n_out * n_in for n_out, n_in in self.shapes])
        return [view.view(shape) for view, shape in zip(views, self.shapes)]

    def step(self, gradient):
        mean, square = self.state
        mean.lerp_(gradient, 0.1)
        square.lerp_(gradient.square(), 0.01)
        self.part -= (1e-4 * mean / (square.sqrt() + 1e-8)).bfloat16()


def compute(x, keys, mix, wide, narrow):
    """One layer of a language model, of heads of 64 numbers."""
    rows, length, width = x.shape
    parts = functional.linear(functional.layer_norm(x, (width,)), keys).view(rows, length, 3, width // 64, 64)
    mixed = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
    x = x + functional.linear(mixed.transpose(1, 2).reshape(x.shape), mix)
    return x + functional.linear(functional.gelu(functional.linear(functional.layer_norm(x, (width,)), wide)), narrow)


def gathered(layers, numbers, side):
    """(layer's number, its weights), each gathered while the one before is used."""
    following = None
    for number, later in zip(numbers, [*numbers[1:], None]):
        flat = side.receive(following if following is not None else side.run(layers[number].gather, layers[number].part))
        following = None if later is None else side.run(layers[later].gather, layers[later].part)
        yield number, flat
        del flat


def train(layers, x, side):
    """A step: forward, where only each layer's input is kept; backward, where each layer is computed once more."""
    inputs = []
    with torch.no_grad():
        for number, flat in gathered(layers, range(len(layers)), side):
            inputs.append(x)
            x = compute(x, *layers[number].weights(flat))
    gradient, loss = (x - x.roll(1, dims=1)) / x.numel(), x.float().square().mean()
    sums = {}
    for number, flat in gathered(layers, range(len(layers) - 1, -1, -1), side):
        leaf, given = flat.detach().requires_grad_(), inputs.pop().requires_grad_()
        y = compute(given, *layers[number].weights(leaf))
        gradient, of_weights = torch.autograd.grad(y, (given, leaf), gradient)
        sums[number] = side.run(layers[number].scatter, of_weights)
        del leaf, given, y, of_weights
    for number, part in sums.items():
        layers[number].step(side.receive(part))
    return loss


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    torch.manual_seed(scale.SEED)
    width, n_layers, steps, tokens = world.of((2048, 20, 22, 8192), (64, 3, 3, 64))
    layers, side = [], Side(world.device)
    for _ in range(n_layers):
        wide = world.random.randint(2, 6) * width
        layers.append(Layer([(3 * width, width), (width, width), (wide, width), (width, wide)], world.device))
    total = torch.zeros((), device=world.device)
    for _ in range(steps):
        length = world.random.randint(tokens // 16, tokens // 2)
        rows = max(1, int(tokens * world.random.uniform(0.5, 1.0)) // length)
        total += train(layers, torch.randn(rows, length, width).bfloat16().to(world.device), side)
    return scale.finish(steps, float(total))


if __name__ == "__main__":
    sys.exit(main())
