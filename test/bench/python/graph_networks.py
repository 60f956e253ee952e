# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: a network with attention learns on parts of a graph. Each step has a few
nodes whose neighbours, and theirs, are drawn anew, so that edges and nodes of each layer are others every time."""
import sys

import scale
import torch
from torch import nn
from torch.nn import functional

HEADS = 4


class Attention(nn.Module):
    """Each node takes from its neighbours what its heads find worth it."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.values = nn.Linear(n_in, n_out, bias=False)
        self.of_source, self.of_target = nn.Linear(n_out, HEADS, bias=False), nn.Linear(n_out, HEADS, bias=False)
        self.itself = nn.Linear(n_in, n_out)

    def forward(self, nodes, sources, targets, n_targets):
        values = self.values(nodes)
        scores = functional.leaky_relu(self.of_source(values)[sources] + self.of_target(values)[targets], 0.2)
        weights = torch.exp(scores - scores.max())
        sums = weights.new_zeros(n_targets, HEADS).index_add(0, targets, weights)
        weights = weights / (sums[targets] + 1e-6)
        messages = (values[sources].view(len(sources), HEADS, -1) * weights[:, :, None]).flatten(1)
        taken = messages.new_zeros(n_targets, messages.shape[1]).index_add(0, targets, messages)
        return functional.elu(taken + self.itself(nodes[:n_targets]))


def sample(world, n_targets, fanouts):
    """Edges of each layer, from the outermost in: sources, targets and how many targets. The targets of a layer are the
    first of its nodes."""
    layers = []
    for fanout in fanouts:
        n_edges = int(n_targets * fanout * world.random.uniform(0.6, 1.0))
        n_nodes = n_targets + int(n_edges * world.random.uniform(0.4, 0.9))
        sources, targets = torch.randint(n_nodes, (n_edges,)), torch.randint(n_targets, (n_edges,))
        layers.insert(0, (sources.to(world.device), targets.to(world.device), n_targets))
        n_targets = n_nodes
    return layers, n_targets


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    torch.manual_seed(scale.SEED)
    n_all, n_features, width, n_kinds, fanouts = world.of((1500000, 100, 256, 47, (12, 8, 5)), (2000, 10, 16, 5, (3, 2)))
    least, most, steps = world.of((512, 4096, 110), (8, 32, 6))
    with torch.device(world.device):
        features, kinds = torch.randn(n_all, n_features), torch.randint(n_kinds, (n_all,))
        sizes = [n_features, *(width,) * (len(fanouts) - 1), width]
        network = nn.ModuleList(Attention(n_in, n_out) for n_in, n_out in zip(sizes, sizes[1:]))
        last = nn.Linear(width, n_kinds)
    optimizer = torch.optim.Adam([*network.parameters(), *last.parameters()], lr=1e-3)
    total = torch.zeros((), device=world.device)
    for step in range(steps):
        layers, n_nodes = sample(world, world.random.randint(least, most), fanouts)
        chosen = torch.randint(n_all, (n_nodes,)).to(world.device)
        nodes = features[chosen]
        with torch.set_grad_enabled(step % 5 != 4):  # every fifth only looks
            for layer, (sources, targets, n_targets) in zip(network, layers):
                nodes = functional.dropout(layer(nodes, sources, targets, n_targets), 0.3, training=step % 5 != 4)
            loss = functional.cross_entropy(last(nodes), kinds[chosen[:len(nodes)]])
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
    return scale.finish(steps, float(total))


if __name__ == "__main__":
    sys.exit(main())
