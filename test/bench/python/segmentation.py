# SPDX-License-Identifier: MIT
"""A PyTorch program whose calls are worth recording: a convolutional network learns to name each point of images, whose sizes
and numbers change from step to step. Now and then it looks at one large image at several sizes and mirrored."""
import sys

import scale
import torch
from torch import nn
from torch.nn import functional

STRIDE = 32  # sizes are multiples of it


def convolutions(n_in, n_out):
    return nn.Sequential(*(part for n in (n_in, n_out) for part in
                           (nn.Conv2d(n, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))))


class Unet(nn.Module):
    """Halves the image at each level on its way down, and joins what it saw there on its way up."""

    def __init__(self, n_kinds, widths):
        super().__init__()
        self.down = nn.ModuleList(convolutions(n_in, n_out) for n_in, n_out in zip((3, *widths), widths))
        self.up = nn.ModuleList(convolutions(low + high, high) for low, high in zip(widths[:0:-1], widths[-2::-1]))
        self.last = nn.Conv2d(widths[0], n_kinds, 1)

    def forward(self, x):
        seen = []
        for level in self.down:
            x = level(functional.max_pool2d(x, 2) if seen else x)
            seen.append(x)
        seen.pop()
        for level in self.up:
            other = seen.pop()
            x = functional.interpolate(x, size=other.shape[-2:], mode="bilinear", align_corners=False)
            x = level(torch.cat((x, other), dim=1))
        return self.last(x)


def size(world, least, most):
    return STRIDE * world.random.randint(least // STRIDE, most // STRIDE)


def learn(network, optimizer, images, kinds):
    """A step whose loss looks at each point and at how each kind's points overlap."""
    scores = network(images)
    shares = scores.softmax(dim=1)
    truth = functional.one_hot(kinds, scores.shape[1]).permute(0, 3, 1, 2)
    overlap = (shares * truth).sum(dim=(0, 2, 3)) / (shares + truth).sum(dim=(0, 2, 3)).clamp_min(1)
    loss = functional.cross_entropy(scores, kinds) - overlap.mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


@torch.no_grad()
def look(network, image, shares):
    """What the network finds at several sizes and mirrored, put together."""
    network.eval()
    found = None
    for share in shares:
        shape = [max(STRIDE, int(side * share) // STRIDE * STRIDE) for side in image.shape[-2:]]
        sized = functional.interpolate(image, size=shape, mode="bilinear", align_corners=False)
        for mirrored in (False, True):
            scores = network(sized.flip(3) if mirrored else sized).softmax(dim=1)
            scores = functional.interpolate(scores.flip(3) if mirrored else scores, size=image.shape[-2:], mode="bilinear",
                                            align_corners=False)
            found = scores if found is None else found + scores
    network.train()
    return found.argmax(dim=1).float().mean()


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    torch.manual_seed(scale.SEED)
    widths, n_kinds, points, steps = world.of(((32, 64, 128, 256, 384), 19, 1500000, 70), ((8, 16), 3, 10000, 6))
    least, most = world.of((256, 1024), (32, 64))
    with torch.device(world.device):
        network = Unet(n_kinds, widths)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    total = torch.zeros((), device=world.device)
    for step in range(steps):
        height, width = size(world, least, most), size(world, least, most)
        images = torch.randn(max(1, min(16, points // (height * width))), 3, height, width).to(world.device)
        kinds = torch.randint(n_kinds, (len(images), height, width)).to(world.device)
        total += learn(network, optimizer, images, kinds)
        if step % 10 == 9 or step == steps - 1:
            large = torch.randn(1, 3, size(world, most // 2, most), size(world, most // 2, 2 * most)).to(world.device)
            total += look(network, large, world.of((0.5, 0.75, 1.0, 1.25), (0.5, 1.0)))
    return scale.finish(steps, float(total))


if __name__ == "__main__":
    sys.exit(main())
