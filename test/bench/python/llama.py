# SPDX-License-Identifier: MIT
"""A decoder shaped like Llama, with random weights in a safetensors file. Needs PyTorch alone; it knows nothing of how
its weights come to the device."""
import json
import os
import struct
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

GIB = 1 << 30
DATA_AT = 4096  # a multiple of which the header is padded to


@dataclass(frozen=True)
class Shape:
    """Of a model; its weights are of two bytes."""
    width: int
    wide: int
    layers: int
    heads: int
    key_heads: int
    words: int

    @property
    def layer_bytes(self):
        keys = self.width * self.key_heads // self.heads
        return 2 * (2 * self.width * self.width + 2 * self.width * keys + 3 * self.width * self.wide + 2 * self.width)

    @property
    def n_bytes(self):
        return self.layers * self.layer_bytes + 2 * (2 * self.words * self.width + self.width)


def shape_of(gib):
    """The shape with about so many GiB: layers of Llama 70B, or of 8B where the model is small, or smaller ones."""
    width, wide, heads, words = (8192, 28672, 64, 32000) if gib >= 8 else (4096, 14336, 32, 32000) if gib >= 1 else \
        (512, 1792, 8, 8000)
    one = Shape(width, wide, 1, heads, 8, words)
    rest = gib * GIB - (one.n_bytes - one.layer_bytes)
    return Shape(width, wide, max(1, round(rest / one.layer_bytes)), heads, 8, words)


def turned(x, start):
    """Rotary positions of (rows, heads, length, width)."""
    half = x.shape[-1] // 2
    places = torch.arange(start, start + x.shape[-2], device=x.device, dtype=torch.float32)
    rates = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-9.2 / half))
    angles = torch.outer(places, rates)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return functional.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.key_heads = shape.heads, shape.key_heads
        keys = shape.width * shape.key_heads // shape.heads
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, keys, bias=False)
        self.v_proj = nn.Linear(shape.width, keys, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x, past):
        rows, length, width = x.shape
        start = 0 if past is None else past[0].shape[2]
        q = turned(self.q_proj(x).view(rows, length, self.heads, -1).transpose(1, 2), start)
        k = turned(self.k_proj(x).view(rows, length, self.key_heads, -1).transpose(1, 2), start)
        v = self.v_proj(x).view(rows, length, self.key_heads, -1).transpose(1, 2)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        share = self.heads // self.key_heads
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, width))


class Wide(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.wide, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.wide, bias=False)
        self.down_proj = nn.Linear(shape.wide, shape.width, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(shape.width), Norm(shape.width)
        self.self_attn, self.mlp = Attention(shape), Wide(shape)

    def forward(self, x, past):
        x = x + self.self_attn(self.input_layernorm(x), past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Words in, the scores of the word after the last one out. `past`: keys and values of the words before."""

    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.words, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)
        self.lm_head = nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, text, past=None):
        x = self.embed_tokens(text)
        for layer in self.layers:
            x = layer(x, past)
        return self.lm_head(self.norm(x[:, -1:]))


def empty(shape):
    """The model without its weights."""
    with torch.device("meta"):
        return Llama(shape).to(torch.bfloat16).requires_grad_(False).eval()


def past_of(shape, length, device):
    """Keys and values of so many words, the same in all layers."""
    drawn = torch.Generator(device=device).manual_seed(5)
    return tuple(torch.randn(1, shape.key_heads, length, shape.width // shape.heads, generator=drawn, device=device)
                 .to(torch.bfloat16) for _ in range(2))


# ---- the file ----

def _header(model):
    at, header = 0, {"__metadata__": {"format": "pt"}}
    for name, tensor in model.state_dict().items():
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + 2 * tensor.numel()]}
        at += 2 * tensor.numel()
    text = json.dumps(header).encode()
    return text + b" " * (-(len(text) + 8) % DATA_AT), at


def _mapped(path, n_bytes, shared):
    return torch.from_file(path, shared=shared, size=n_bytes, dtype=torch.uint8)


def save(model, path, device="cpu"):
    """Writes random weights for the model, drawn on `device`; a file of the right size is left as it is."""
    header, n_bytes = _header(model)
    size = 8 + len(header) + n_bytes
    if os.path.exists(path) and os.path.getsize(path) == size:
        return path
    part = f"{path}.{os.getpid()}"
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(size)
    whole, at = _mapped(part, size, True), 8 + len(header)
    drawn = torch.Generator(device=device).manual_seed(7)
    for name, tensor in model.state_dict().items():
        values = torch.empty(tensor.shape, dtype=torch.bfloat16, device=device)
        values = values.fill_(1) if "norm" in name else values.normal_(0, 0.02, generator=drawn)
        whole[at:at + 2 * tensor.numel()].view(torch.bfloat16).view(tensor.shape).copy_(values)
        at += 2 * tensor.numel()
    os.rename(part, path)
    return path


def tensors_of(model, path):
    """The model's weights by name, over a mapping of the file."""
    header, n_bytes = _header(model)
    whole, at, found = _mapped(path, 8 + len(header) + n_bytes, False), 8 + len(header), {}
    for name, tensor in model.state_dict().items():
        found[name] = whole[at:at + 2 * tensor.numel()].view(torch.bfloat16).view(tensor.shape)
        at += 2 * tensor.numel()
    return found


def resident(model, path, device):
    """Gives an empty model its weights on `device`."""
    for name, tensor in tensors_of(model, path).items():
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, nn.Parameter(tensor.to(device), requires_grad=False))
    return model
