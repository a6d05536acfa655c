"""Weights in safetensors files: written once, read with every fault named."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from triptych_training.errors import CheckpointError

WEIGHTS = "model.safetensors"


def save_weights(model: nn.Module, folder: Path) -> None:
    """Write `folder/model.safetensors` in one move: a file that is there is whole."""
    partial = folder / f"{WEIGHTS}.partial"
    save_file(unique_weights(model), str(partial), metadata={"format": "pt"})
    partial.replace(folder / WEIGHTS)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Names and tensors of a safetensors file.

    Raises:
        CheckpointError: the file cannot be read, or is damaged.
    """
    try:
        return load_file(str(path))
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy `weights` into `model`.

    Raises:
        CheckpointError: names or shapes differ; lists every missing, unexpected and misshapen weight.
    """
    if faults := _differences(model, weights):
        raise CheckpointError(f"{origin}: {'; '.join(faults)}")
    assign_weights(model, weights)


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1).

    Raises:
        CheckpointError: a folder's weights are missing, damaged, or other ones than the first folder's.
    """
    total: dict[str, Tensor] = {}
    for folder in folders:
        weights = read_weights(folder / WEIGHTS)
        total = total or {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights.items()}
        if _shapes(weights) != _shapes(total):
            raise CheckpointError(f"{folder}: its weights are not those of {folders[0]}, there is no mean of the two")
        for name, tensor in weights.items():
            total[name] += tensor
    return {name: (tensor / len(folders)).float() for name, tensor in total.items()}


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def weight_faults(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> list[str]:
    """Every missing, unexpected and misshapen weight of those read from `origin`."""
    return [f"{origin}: {fault}" for fault in _differences(model, weights)]


def _differences(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Every missing, unexpected and misshapen weight."""
    expected = unique_weights(model)
    faults = [f"missing {name}" for name in sorted(expected.keys() - weights.keys())]
    faults += [f"unexpected {name}" for name in sorted(weights.keys() - expected.keys())]
    faults += [
        f"{name} has shape {list(weights[name].shape)}, expected {list(tensor.shape)}"
        for name, tensor in sorted(expected.items())
        if name in weights and weights[name].shape != tensor.shape
    ]
    return faults


def assign_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights`, which `weight_faults` found nothing wrong with, into `model`."""
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """Weights without the second and third name of a tied matrix."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor.detach().to("cpu", torch.float32).contiguous()
    return unique
