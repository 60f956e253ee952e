# SPDX-License-Identifier: MIT
"""Models on the CPU for tests of the Python package: whatever asks for CUDA gets the CPU, and the object of weights is
one in host memory. Ends with 77 where there is no PyTorch."""
import contextlib
import copy
import json
import os
import struct
import sys
import tempfile
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "bench", "python"),
                os.path.join(HERE, "..", "gpu", "python")]

import vpmm
from host_weights import HostWeights
from vpmm import dlpack, models, streams

CPU = torch.device("cpu")
torch.set_num_threads(1)  # threads of its own would spin where the machine is busy
SMALL_BYTES = 2048


def save(model, path):
    """The model's saved tensors as a safetensors file; tied ones under their first name."""
    header, data, seen, at = {}, [], set(), 0
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        raw = bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).tolist())
        dtype = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    return path


class OnTheHost(unittest.TestCase):
    """Everything that asks for CUDA gets the CPU, and every group of 2 KiB is streamed."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        for target, name, value in (
                (models, "cuda_device", lambda _: CPU), (models, "Weights", HostWeights), (dlpack, "CUDA", 1),
                (models.make_groups, "__defaults__", (*models.make_groups.__defaults__[:-1], SMALL_BYTES)),
                (torch.cuda, "init", lambda: None), (torch.cuda, "synchronize", lambda: None),
                (torch.cuda, "device", lambda _: contextlib.nullcontext()),
                (streams, "current_device", lambda: 0), (streams, "current_stream", lambda _: 0)):
            self.enterContext(mock.patch.object(target, name, value))
        torch.manual_seed(3)

    def path(self, name="model.safetensors"):
        return os.path.join(self.folder, name)

    def offload(self, model, **more):
        """A frozen copy of the model on the meta device, offloaded from a file with its weights."""
        more.setdefault("budget", "1GiB")
        more.setdefault("source", save(model, self.path()))
        empty = copy.deepcopy(model).to("meta").requires_grad_(False)
        return empty, vpmm.offload(empty, **more)
