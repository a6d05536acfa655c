"""Weights stored by Hugging Face's libraries: safetensors or pickles, in one file or in shards.

Names and shapes are known at once; a tensor is read on demand. Pickles are loaded weights-only, so that they cannot run code.
Sources: https://huggingface.co/docs/safetensors,
https://docs.pytorch.org/docs/stable/generated/torch.load.html
"""

import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import PICKLED_REMEDY, file_remedy, one_line, pointer_remedy
from triptych_export.onnx_files.weights import open_graphs, weight_graphs

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
# First part of all names in weights that were saved from inside a wrapper: the wrapper.
WRAPPERS = {
    **{"_orig_mod.": "torch.compile", "module.": "DataParallel", "base_model.model.": "PEFT"},
    **{"_fsdp_wrapped_module.": "FSDP", "_forward_module.": "Lightning Fabric"},
}
OF_MORE = f"; if torch.save wrote a model or a training's state, {PICKLED_REMEDY}"
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}  # suffixes of norms in checkpoints converted from TensorFlow


class Shard(Protocol):
    """One file of weights."""

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """Shapes of all tensors, by name."""

    def read(self, name: str) -> Tensor:
        """Read one tensor in its stored type."""


class StoredWeights(Mapping[str, torch.Size]):
    """Names and shapes of a checkpoint's tensors, read one at a time."""

    def __init__(self, shards: Mapping[Path, Shard]) -> None:
        self.paths = tuple(shards)
        self._places = {_modern(name): (shard, name) for shard in shards.values() for name in shard.shapes}

    def __getitem__(self, name: str) -> torch.Size:
        shard, stored_name = self._places[name]
        return shard.shapes[stored_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def tensor(self, name: str) -> Tensor:
        """Read one tensor as float32 on the CPU; raises KeyError if there is no tensor of that name."""
        shard, stored_name = self._places[name]
        return shard.read(stored_name).to(torch.float32)


def open_weights(folder: Path) -> StoredWeights:
    """Open the weights of a folder; safetensors take precedence, ONNX files are the last choice.

    Raises:
        SourceError: there are none, or files are missing or damaged; lists all of them.
    """
    for name, opener in ((SAFETENSORS, _SafeShard), (PICKLE, _PickleShard)):
        if (folder / name).exists():
            return StoredWeights(_open([folder / name], opener))
        if (folder / f"{name}{INDEX}").exists():
            return StoredWeights(_open(_shard_paths(folder / f"{name}{INDEX}"), opener))
    if graphs := weight_graphs(folder):
        return StoredWeights(open_graphs(graphs))
    there = ", ".join(sorted(path.name for path in folder.glob("*") if path.is_file())) or "nothing"
    raise SourceError(
        f"{folder}: holds no weights; supported: {SAFETENSORS} and {PICKLE}, or shards of either with {SAFETENSORS}{INDEX} "
        f"or {PICKLE}{INDEX}; there are: {there}{file_remedy(folder)}"
    )


class _SafeShard:
    """Memory-mapped safetensors file."""

    def __init__(self, path: Path) -> None:
        file: Any = safe_open(str(path), framework="pt")
        self._file = file
        self.shapes = {name: torch.Size(file.get_slice(name).get_shape()) for name in list(file.keys())}

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor


class _OtherObjectError(Exception):
    """A pickle does not map names to tensors."""


class _PickleShard:
    """Pickle file, memory-mapped if it is a zip archive (PyTorch 1.6 and later)."""

    def __init__(self, path: Path) -> None:
        try:
            self._tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:
            self._tensors = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(self._tensors, dict) or not all(isinstance(t, Tensor) for t in self._tensors.values()):
            raise _OtherObjectError
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._tensors[name]
        return tensor


def _open(paths: list[Path], opener: type[_SafeShard] | type[_PickleShard]) -> dict[Path, Shard]:
    shards: dict[Path, Shard] = {}
    faults = []
    for path in paths:
        try:
            shards[path] = opener(path)
        except FileNotFoundError:
            faults.append(f"{path.name} is missing")
        except pickle.UnpicklingError:
            remedy = pointer_remedy(path) or OF_MORE
            faults.append(f"{path.name} holds more than weights, or is damaged: pickles are loaded weights-only{remedy}")
        except _OtherObjectError:
            faults.append(f"{path.name} does not map names to tensors{OF_MORE}")
        except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
            faults.append(f"{path.name} is damaged or cut short ({one_line(error)}){pointer_remedy(path)}")
    if faults:
        raise SourceError(f"{paths[0].parent}: {'; '.join(faults)}")
    return shards


def _shard_paths(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{index}: not an index of shards ({type(error).__name__}: {error})") from error
    foreign = sorted(str(name) for name in names if Path(str(name)).name != name)
    if foreign or not names:
        raise SourceError(f"{index}: {foreign[0] if foreign else 'an empty index'!r} is not a plain file name")
    return [index.parent / name for name in sorted(names)]


def _modern(name: str) -> str:
    for old, new in OLD_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
