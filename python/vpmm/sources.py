# SPDX-License-Identifier: MIT
"""Where a model's weights lie: one safetensors file, several, or a folder or index that names them."""
import json
import os

from .errors import BadSource


def source_files(source):
    """The paths of `source`: a file, a list of files, an index (*.index.json), or a folder with either."""
    if isinstance(source, (list, tuple)):
        return [path for part in source for path in source_files(part)]
    path = os.fspath(source)
    if os.path.isdir(path):
        return _files_of_folder(path)
    return _files_of_index(path) if path.endswith(".index.json") else [path]


def _files_of_folder(folder):
    names = sorted(os.listdir(folder))
    indexes = [name for name in names if name.endswith(".safetensors.index.json")]
    if indexes:
        return _files_of_index(os.path.join(folder, indexes[0]))
    found = [os.path.join(folder, name) for name in names if name.endswith(".safetensors")]
    if not found:
        raise BadSource(f"{folder}: there is no safetensors file in it")
    return found


def _files_of_index(path):
    try:
        with open(path, encoding="utf-8") as file:
            names = set(json.load(file)["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadSource(f"{path}: it is no index of safetensors files ({error})") from None
    if any(not isinstance(name, str) or os.path.basename(name) != name for name in names):
        raise BadSource(f"{path}: it names files outside of its folder")
    return [os.path.join(os.path.dirname(path), name) for name in sorted(names)]


class Tensors:
    """The tensors of all files by name."""

    def __init__(self, weights, source):
        self.found = {}
        for path in source_files(source):
            number, tensors = weights.open(path)
            for name, tensor in tensors.items():
                if name in self.found:
                    raise BadSource(f"{path}: {name} is in another file, too")
                self.found[name] = (path, number, tensor)

    def find(self, names, dtype, shape):
        """Where a weight with these names lies in that type and shape: the number of its file, its name there, and
        (path, offset). BadSource, with its name, otherwise."""
        name = next((name for name in names if name in self.found), None)
        if name is None:
            raise BadSource(f"{names[0]}: the source has no such weight")
        path, number, tensor = self.found[name]
        if tensor.dtype != dtype:
            raise BadSource(f"{name}: the model has it as {dtype}, and the source as {tensor.dtype}")
        if tuple(tensor.shape) != tuple(shape):
            raise BadSource(f"{name}: the model has the shape {list(shape)}, and the source {list(tensor.shape)}")
        return number, name, (path, tensor.offset)
