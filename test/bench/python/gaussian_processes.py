# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: Gaussian processes are fitted to data sets of different sizes, each with
kernels of its own, and asked for what lies between. The matrices have as many rows and columns as there are points."""
import math
import sys

import scale
import torch
from torch import nn
from torch.nn import functional


def apart(a, b):
    """The square of the distance between each point of one and each of the other."""
    return (a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T).clamp_min(0)


class Process(nn.Module):
    """A smooth and a periodic or a rougher kernel, each with its lengths, and noise."""

    def __init__(self, n_features, is_periodic):
        super().__init__()
        self.lengths, self.rough = nn.Parameter(torch.zeros(n_features)), nn.Parameter(torch.zeros(n_features))
        self.sizes, self.is_periodic = nn.Parameter(torch.zeros(3)), is_periodic

    def kernel(self, a, b):
        smooth, rough, _ = functional.softplus(self.sizes)
        covers = smooth * torch.exp(-0.5 * apart(a * self.lengths.exp(), b * self.lengths.exp()))
        if self.is_periodic:
            turns = (a @ self.rough.exp())[:, None] - (b @ self.rough.exp())[None]
            return covers + rough * torch.exp(-2 * torch.sin(turns).square())
        far = (3 * apart(a * self.rough.exp(), b * self.rough.exp()) + 1e-6).sqrt()
        return covers + rough * (1 + far) * torch.exp(-far)

    def factor(self, points):
        noise = functional.softplus(self.sizes[2]) + 0.2
        return torch.linalg.cholesky(self.kernel(points, points) + noise * torch.eye(len(points), device=points.device))

    def loss(self, points, values):
        """The values' negative logarithmic likelihood, a point."""
        root = self.factor(points)
        white = torch.linalg.solve_triangular(root, values[:, None], upper=False)
        return (0.5 * white.square().sum() + root.diagonal().log().sum()) / len(points)

    @torch.no_grad()
    def ask(self, points, values, others):
        """Mean and variance at other points, some at a time."""
        root = self.factor(points)
        solved, found = torch.cholesky_solve(values[:, None], root), []
        for part in others.split(max(1, len(others) // 4)):
            across = self.kernel(part, points)
            spread = torch.linalg.solve_triangular(root, across.T, upper=False)
            found.append(torch.cat((across @ solved, 1 - spread.square().sum(0)[:, None]), dim=1))
        return torch.cat(found)


def fit(process, points, values, steps):
    optimizer = torch.optim.Adam(process.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = process.loss(points, values)
        loss.backward()
        optimizer.step()
    return loss.detach()


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    torch.manual_seed(scale.SEED)
    n_sets, least, most, steps = world.of((20, 1200, 9000, 8), (3, 20, 60, 3))
    total = torch.zeros((), device=world.device)
    for number in range(n_sets):
        n_points = int(math.exp(world.random.uniform(math.log(least), math.log(most))))
        n_features = world.random.choice((2, 3, 8))
        points = torch.rand(n_points, n_features).to(world.device)
        values = torch.sin(7 * points.sum(dim=1)) + 0.1 * torch.randn(n_points).to(world.device)
        process = Process(n_features, number % 2 == 1).to(world.device)
        total += fit(process, points, values, world.random.randint(steps // 2, steps))
        others = torch.rand(world.random.randint(n_points // 2, 2 * n_points), n_features).to(world.device)
        total += process.ask(points, values, others).mean()
    return scale.finish(n_sets, float(total))


if __name__ == "__main__":
    sys.exit(main())
