# SPDX-License-Identifier: MIT
"""PyTorch models: parameters become tensors over windows, hooks around the model make passes, and the forward of a module
that reads streamed weights tells of their use. A hook on each module would take several microseconds of the host."""
import functools
import mmap
import sys
import warnings

import torch

from . import dlpack, streams, tensors
from .errors import Unsupported
from .groups import make_groups, module_of, order_of
from .plans import load_plan
from .sources import Tensors
from .weights import DIRECT, STREAMED, Weights


# What moves or converts the parameters of a module, and what copies it: the copy's forward would be the original's.
REFUSED = ("_apply", "__deepcopy__")


def cuda_device(device):
    """The CUDA device that is meant, with its number; None: the current one."""
    if not torch.cuda.is_available():
        raise Unsupported("there is no CUDA device")
    index = torch.cuda.current_device() if device is None else torch.device(device).index
    return torch.device("cuda", index or 0)


class Offloaded:
    """A model whose weights lie in windows. `close` ends it: its parameters are on the meta device afterwards."""

    def __init__(self, model, weights, groups, found, device):
        self.model, self.weights, self.groups, self.device = model, weights, groups, device
        self.found, self._places, self._maps = found, {}, {}
        self._hooks, self._wrapped, self._depth, self._unused = [], [], 0, set()
        self._whole_stream = None  # of the pass under way, while nothing is streamed: uses on it need not be told

    def stats(self):
        """The figures of vpmm.Weights.stats."""
        return self.weights.stats()

    def budget(self, size):
        """Another budget, between passes."""
        with torch.cuda.device(self.device):
            return self.weights.budget(size)

    def thaw(self):
        """The graphs of captured passes are gone."""
        with torch.cuda.device(self.device):
            self.weights.thaw()

    def close(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for module, forward in reversed(self._wrapped):
            module.__dict__.pop("forward", None)
            module.__dict__.update({"forward": forward} if forward else {})
        self._wrapped = []
        for module in self.model.modules():
            for name in REFUSED:
                module.__dict__.pop(name, None)
        for weight in self.found.values():
            tensors.put(self.model, weight, torch.empty_like(weight.tensor, device="meta"))
        with torch.cuda.device(self.device):
            self.weights.close()

    # ---- weights ----

    def fill(self, source, progress):
        """Adds every weight, with its bytes from `source`; addresses by name."""
        files, addresses = Tensors(self.weights, source), {}
        for reason in self.weights.staged:
            warnings.warn(f"{reason}: its weights are read through buffers, which is slow and cannot be captured")
        for number, group in enumerate(self.groups):
            added = []
            for name in group.names:
                weight = self.found[name]
                file, saved, place = files.find(weight.names, tensors.DTYPES[weight.tensor.dtype], weight.tensor.shape)
                self._places[name] = place
                index, addresses[name] = self.weights.add(name, number, weight.n_bytes, group.kind)
                added.append((index, file, saved))
            for index, file, saved in added:
                self.weights.fill_from(index, file, saved)
            _show(len(addresses), len(self.found), progress)
        return addresses

    def install(self, addresses, told=(STREAMED,)):
        """Puts the windows in the place of the weights, and tells of the uses of groups of the kinds `told`."""
        for name, address in addresses.items():
            weight = self.found[name]
            window = dlpack.tensor_at(torch, address, weight.n_bytes, self.device.index or 0)
            tensors.put(self.model, weight, window.view(weight.tensor.dtype).view(weight.tensor.shape))
        self._hooks.append(self.model.register_forward_pre_hook(self._begin, prepend=True))
        for number, group in enumerate(self.groups):
            if group.kind == STREAMED:
                self._unused.add(number)
            if group.kind in told:
                for module in tensors.owners_of(self.model, self.found, group.names):
                    self._wrap(module, number)
        self._wrap_model()
        self._keep_calls()
        self._hooks.append(self.model.register_forward_hook(self._end, always_call=True))
        self._guard()

    def is_flat(self):
        """Whether no module that reads a streamed group is inside another one, or reads two: then modules read their
        groups in the order of their kernels."""
        owners = [module for group in self.groups if group.kind == STREAMED
                  for module in tensors.owners_of(self.model, self.found, group.names)]
        ids = {id(module) for module in owners}
        return len(ids) == len(owners) and \
            not any(id(inner) in ids for module in owners for inner in list(module.modules())[1:])

    # ---- passes ----

    def _on_stream(self, call, *arguments):
        """The call on the model's device, which need not be the current one, and on its current stream."""
        index = self.device.index or 0
        if streams.current_device() == index:
            call(*arguments, streams.current_stream(index))
            return
        with torch.cuda.device(self.device):
            call(*arguments, streams.current_stream(index))

    def _begin(self, *_):
        if self._depth == 0:
            self._on_stream(self.weights.begin)
            if self.weights.is_whole():
                self._whole_stream = streams.current_stream(self.device.index or 0)
        self._depth += 1

    def _end(self, _module, _inputs, output):
        if not self._depth:  # its begin was refused
            return
        self._depth -= 1
        if self._depth:
            return
        was_whole, self._whole_stream = self._whole_stream is not None, None
        if output is None and sys.exc_info()[0]:
            self._on_stream(self.weights.cancel)
            return
        self._on_stream(self.weights.end)
        for number in sorted(self._unused if not was_whole else ()):
            warnings.warn(f"{self.groups[number].names[0]}: no module used it in the first pass; where it is read all the "
                          "same, name it in keep")
        self._unused = self._unused if was_whole else set()

    def _wrap(self, module, number):
        inner, index, is_streamed = module.forward, self.device.index or 0, self.groups[number].kind == STREAMED
        self._wrapped.append((module, module.__dict__.get("forward")))

        @functools.wraps(inner)
        def forward(*arguments, **named):
            if is_streamed and self._whole_stream == streams.current_stream(index):
                return inner(*arguments, **named)
            if not self._depth:
                raise Unsupported(f"{self.groups[number].names[0]}: its module was called by itself; call the model that "
                                  "was offloaded")
            self._on_stream(self.weights.use, number)
            self._unused.discard(number)
            try:
                return inner(*arguments, **named)
            finally:
                self._on_stream(self.weights.done, number)

        module.forward = forward

    def _wrap_model(self):
        """PyTorch calls no hook after what is no Exception, such as an interrupt by the user: it ends the pass here."""
        inner = self.model.forward
        self._wrapped.append((self.model, self.model.__dict__.get("forward")))

        @functools.wraps(inner)
        def forward(*arguments, **named):
            try:
                return inner(*arguments, **named)
            except Exception:
                raise
            except BaseException:
                self._end(None, None, None)
                raise

        self.model.forward = forward

    def _keep_calls(self):
        """A hook, even one that does nothing, keeps PyTorch's own layers from reading the weights of modules inside them
        without calling those."""
        for module in self.model.modules():
            if isinstance(module, (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)):
                self._hooks.append(module.register_forward_pre_hook(lambda *_: None))

    # ---- what reads weights outside of passes ----

    def _guard(self):
        """A state_dict has the bytes of the files; nothing may be written to windows."""
        by_module = {}
        for first, weight in self.found.items():
            for name in weight.names:
                module = self.model.get_submodule(module_of(name))
                by_module.setdefault(module, {})[name.rpartition(".")[2]] = first
        for module, names in by_module.items():
            self._hooks.append(module.register_state_dict_post_hook(self._saved(names)))
            self._hooks.append(module.register_load_state_dict_pre_hook(_refuse))
        for module in self.model.modules():
            module.__dict__.update(dict.fromkeys(REFUSED, _refuse))

    def _saved(self, names):
        def replace(_module, state, prefix, _metadata):
            for leaf, first in names.items():
                if prefix + leaf in state:
                    state[prefix + leaf] = self._host(first)
        return replace

    def _host(self, name):
        path, offset = self._places[name]
        if path not in self._maps:
            with open(path, "rb") as file:
                self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        like = self.found[name].tensor
        raw = torch.frombuffer(self._maps[path], dtype=torch.uint8, offset=offset, count=self.found[name].n_bytes)
        return (raw.clone() if offset % like.element_size() else raw).view(like.dtype).view(like.shape)


def _refuse(*_args, **_more):
    raise Unsupported("weights in windows cannot be moved, converted, copied or written: close() the offloaded model first")


def _show(done, total, progress):
    if progress and sys.stderr.isatty():
        sys.stderr.write(f"\rvpmm: {done} of {total} weights" + ("\n" if done == total else ""))


def _order(offloaded, plan):
    """The order of a plan, where modules read their groups in the order of its kernels."""
    first = {name: weight.name for weight in offloaded.found.values() for name in weight.names}
    order = order_of(offloaded.groups, load_plan(plan), first)
    if order and offloaded.is_flat():
        offloaded.weights.order(order)


def offload(model, budget, source, keep=(), direct=(), plan=None, check=False, follow=False, device=None,
            progress=True, promote=0, **options):
    """Gives a model, which may be on the meta device, its weights from safetensors files. `keep`, `direct`: names of
    modules or weights that are always resident, or read from host memory. `plan`: of vpmm.plan, or its file; without
    one the first pass is recorded. `promote`: of the budget, the most for direct modules that are used much. `check`: a read of a weight outside of its module faults. Returns an Offloaded."""
    tensors.refuse_old()
    device = cuda_device(device)
    found = tensors.weights_of(model, device)
    keep, direct = tensors.matching(found, keep), tensors.matching(found, direct)
    groups = make_groups({name: weight.n_bytes for name, weight in found.items()}, keep, direct,
                         tensors.unit_names(model, found), bool(promote))
    tensors.refuse(model, found)
    with torch.cuda.device(device):
        torch.cuda.init()
        torch.cuda.synchronize()
        tensors.place_others(model, found, device)
        weights = Weights(budget, device.index or 0, check=check, follow=follow, promote=promote, **options)
        close = weights.close
        try:
            offloaded = Offloaded(model, weights, groups, found, device)
            addresses = offloaded.fill(source, progress)
            if plan is not None:
                _order(offloaded, plan)
            weights.seal()
            close = offloaded.close
            offloaded.install(addresses, (STREAMED, DIRECT) if promote else (STREAMED,))
        except BaseException:
            close()
            raise
    return offloaded
