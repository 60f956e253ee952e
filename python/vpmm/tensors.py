# SPDX-License-Identifier: MIT
"""The tensors of a PyTorch model: which of them are weights, what cannot be served, and how one is put in the place of
another. It knows no windows and no passes."""
import contextlib
from dataclasses import dataclass, field

import torch

from .errors import Unsupported
from .groups import matches, module_of

DTYPES = {getattr(torch, name): text for name, text in (
    ("float32", "F32"), ("float64", "F64"), ("float16", "F16"), ("bfloat16", "BF16"), ("int8", "I8"), ("uint8", "U8"),
    ("int16", "I16"), ("uint16", "U16"), ("int32", "I32"), ("uint32", "U32"), ("int64", "I64"), ("uint64", "U64"),
    ("bool", "BOOL"), ("complex64", "C64"), ("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2"))
    if hasattr(torch, name)}
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")
# They read the weights of modules inside them without calling these.
ATOMS = (torch.nn.MultiheadAttention,)


@dataclass
class Weight:
    """A parameter or saved buffer under all its names, the first of them first."""
    tensor: torch.Tensor
    names: list = field(default_factory=list)

    @property
    def name(self):
        return self.names[0]

    @property
    def n_bytes(self):
        return self.tensor.numel() * self.tensor.element_size()


def _named(model):
    return (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))


def weights_of(model, device):
    """Every weight that a file has to hold, by its first name. Trainable parameters that are on `device` already stay the
    program's own: adapters over a frozen model."""
    saved, found = set(model.state_dict(keep_vars=True)), {}
    for name, tensor in _named(model):
        is_own = tensor.requires_grad and tensor.device == device
        if name in saved and tensor.numel() and not is_own:
            found.setdefault(id(tensor), Weight(tensor)).names.append(name)
    return {weight.name: weight for weight in found.values()}


def refuse_old():
    """Raises Unsupported where PyTorch lacks what keeps weights in windows from being read or written by others: its
    layers of transformers read the weights of modules inside them whatever hooks these have."""
    if not hasattr(torch.nn.Module, "register_load_state_dict_pre_hook"):
        raise Unsupported(f"PyTorch {torch.__version__} is too old: 2.5 is needed")


def refuse(model, weights):
    """Raises Unsupported for what cannot work with weights that move, by name."""
    for name, module in model.named_modules():
        if type(module).__name__ in WRAPPERS:
            raise Unsupported(f"{name or 'the model'}: {type(module).__name__} moves or copies parameters; offload "
                              "the model inside it")
    for name, weight in weights.items():
        if weight.tensor.dtype not in DTYPES:
            raise Unsupported(f"{name}: weights of {weight.tensor.dtype} are not supported")
        if weight.tensor.requires_grad:
            raise Unsupported(f"{name}: it is trainable; freeze it (requires_grad_(False)), or move it to the device, "
                              "where it stays the program's own")


def matching(weights, patterns):
    """The first names of the weights that the patterns name, by any of their names. Unsupported: one names none."""
    found = []
    for pattern in patterns:
        named = [name for name, weight in weights.items() if any(matches(other, (pattern,)) for other in weight.names)]
        if not named:
            raise Unsupported(f"{pattern}: no weight of the model is named so")
        found += named
    return found


def unit_names(model, names):
    """For each weight the name under which it is grouped: its own, or that of a module that reads it by itself."""
    atoms = [name for name, module in model.named_modules() if isinstance(module, ATOMS)]
    return {name: next((f"{atom}.{name.rpartition('.')[2]}" for atom in atoms if name.startswith(atom + ".")), name)
            for name in names}


def owners_of(model, weights, names):
    """The modules that have any of these weights, each once, in the order of the model."""
    wanted = {module_of(unit) for name in names for unit in unit_names(model, weights[name].names).values()}
    found = {id(module): module for name, module in model.named_modules(remove_duplicate=False) if name in wanted}
    return list(found.values())


def put(model, weight, tensor):
    """Puts `tensor` in the place of the weight under all its names."""
    new = torch.nn.Parameter(tensor, requires_grad=False) if isinstance(weight.tensor, torch.nn.Parameter) else tensor
    for name in weight.names:
        setattr(model.get_submodule(module_of(name)), name.rpartition(".")[2], new)


def place_others(model, weights, device):
    """Moves what is no weight of a file, such as computed tables, to the device. Unsupported: it has no bytes."""
    managed = {name for weight in weights.values() for name in weight.names}
    for name, tensor in _named(model):
        if name in managed or tensor.device == device:
            continue
        if tensor.is_meta and tensor.numel():
            raise Unsupported(f"{name}: it is on the meta device, and is not saved with the model: make the model "
                              "within vpmm.empty()")
        moved = torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.detach().to(device)
        put(model, Weight(tensor, [name]), moved)


@contextlib.contextmanager
def empty():
    """Modules that are made within have their parameters on the meta device. Buffers are made as ever, with values."""
    register = torch.nn.Module.register_parameter

    def register_empty(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            made = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
            module._parameters[name] = made

    torch.nn.Module.register_parameter = register_empty
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register
