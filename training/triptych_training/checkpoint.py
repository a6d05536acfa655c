"""Checkpoint folders: what training writes and export reads.

config.json         format, architecture, shapes, languages, training provenance
model.safetensors   weights
tokenizer.json      Hugging Face tokenizers format
samples.tsv         some validation pairs, for the exporter's parity check (optional)
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.corpus import Pair, read_pairs
from triptych_training.errors import CheckpointError
from triptych_training.tokenizer import literal
from triptych_training.transformer import Transformer, TransformerConfig

FORMAT = 1
ARCHITECTURE = "triptych-transformer"
SAMPLES = "samples.tsv"


@dataclass(frozen=True)
class Checkpoint:
    """A trained translation model with all that belongs to it."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Pair] = ()


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write `folder`; the weights come last, so that a folder with weights is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": FORMAT,
        "architecture": ARCHITECTURE,
        "transformer": asdict(checkpoint.model.config),
        "source_language": checkpoint.source_language,
        "target_language": checkpoint.target_language,
        "provenance": dict(checkpoint.provenance),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    checkpoint.tokenizer.save(str(folder / "tokenizer.json"))
    if checkpoint.samples:
        lines = [f"{source}\t{target}\n" for source, target in checkpoint.samples]
        (folder / SAMPLES).write_text("".join(lines), encoding="utf-8")
    partial = folder / "model.safetensors.partial"
    save_file(_unique(checkpoint.model), str(partial), metadata={"format": "pt"})
    os.replace(partial, folder / "model.safetensors")


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; all faults at once.
    """
    missing = [name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder}: not a checkpoint folder, missing {', '.join(missing)}")
    config = _read_config(folder / "config.json")
    try:
        model = Transformer(TransformerConfig(**config["transformer"]))
        weights = load_file(str(folder / "model.safetensors"))
        tokenizer = literal(Tokenizer.from_file(str(folder / "tokenizer.json")))
        languages = config["source_language"], config["target_language"]
    except SafetensorError as error:
        raise CheckpointError(f"{folder / 'model.safetensors'}: damaged ({error})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / 'config.json'}: {error}") from error
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError(f"{folder / 'tokenizer.json'}: {error}") from error
    load_weights(model, weights, folder / "model.safetensors")
    samples = read_pairs([str(folder / SAMPLES)]) if (folder / SAMPLES).exists() else []
    return Checkpoint(model.eval(), tokenizer, *languages, config.get("provenance", {}), samples)


def load_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy `weights` into `model`.

    Raises:
        CheckpointError: names or shapes differ; lists every missing, unexpected and misshapen weight.
    """
    expected = _unique(model)
    faults = [f"missing {name}" for name in sorted(expected.keys() - weights.keys())]
    faults += [f"unexpected {name}" for name in sorted(weights.keys() - expected.keys())]
    faults += [
        f"{name} has shape {list(weights[name].shape)}, expected {list(tensor.shape)}"
        for name, tensor in sorted(expected.items())
        if name in weights and weights[name].shape != tensor.shape
    ]
    if faults:
        raise CheckpointError(f"{origin}: {'; '.join(faults)}")
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1)."""
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, tensor in load_file(str(folder / "model.safetensors")).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(folders)).float() for name, tensor in total.items()}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error
    if config.get("architecture") != ARCHITECTURE or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: architecture {config.get('architecture')!r} format {config.get('format')!r}; "
            f"supported: {ARCHITECTURE!r} format {FORMAT}"
        )
    return config


def _unique(model: Transformer) -> dict[str, Tensor]:
    """Weights without the second and third name of a tied matrix."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor.detach().to("cpu", torch.float32).contiguous()
    return unique
