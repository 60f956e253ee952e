# SPDX-License-Identifier: MIT
"""Weights larger than their budget, from Python. The program runs under libvpmm.so: vpmm run -- python program.py

vpmm.offload(model, budget="24GiB", source="model.safetensors") gives a PyTorch model weights that stay in host memory
and are copied in while it computes. docs/WEIGHTS.md tells more. torch is imported where it is needed, and nowhere
else: vpmm.Weights is the interface of C, for other programs."""
from .errors import (BadSource, BudgetTooSmall, Busy, DeviceFull, DriverFailed, NoHostMemory, NotLoaded, OtherOrder,
                     Unsupported, VpmmError)
from .plans import Plan, load_plan
from .sizes import parse_bytes
from .weights import DIRECT, KEPT, STREAMED, Weights

__all__ = ["BadSource", "BudgetTooSmall", "Busy", "DIRECT", "DeviceFull", "DriverFailed", "KEPT", "NoHostMemory",
           "NotLoaded", "OtherOrder", "Plan", "STREAMED", "Unsupported", "VpmmError", "Weights", "empty", "load_plan",
           "offload", "parse_bytes", "plan"]


def empty():
    """A context: modules that are made within have no weights yet, but all the rest."""
    from .tensors import empty as make_empty
    return make_empty()


def offload(model, budget, source, **options):
    """Gives `model` its weights from `source` within `budget` bytes of its device: see vpmm.models.offload."""
    from .models import offload as offload_model
    return offload_model(model, budget, source, **options)


def plan(exported_program):
    """The order in which a torch.export program reads its weights, and the floor: see vpmm.graphs.plan."""
    from .graphs import plan as plan_program
    return plan_program(exported_program)
