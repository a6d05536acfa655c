"""Checkpoint folders: what training writes and export reads.

config.json         format, architecture, shapes, languages, training provenance
model.safetensors   weights
tokenizer.json      Hugging Face tokenizers format
samples.tsv         some validation pairs, for the exporter's parity check (optional)
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.corpus import Pair, read_pairs
from triptych_training.errors import CheckpointError, CorpusError
from triptych_training.tokenizer import load_tokenizer, save_tokenizer
from triptych_training.transformer import Transformer, TransformerConfig

FORMAT = 1
ARCHITECTURE = "triptych-transformer"
SAMPLES = "samples.tsv"

Result = TypeVar("Result")


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
    save_tokenizer(checkpoint.tokenizer, folder / "tokenizer.json")
    if checkpoint.samples:
        lines = ["\t".join(text.replace("\t", " ") for text in pair) + "\n" for pair in checkpoint.samples]
        (folder / SAMPLES).write_text("".join(lines), encoding="utf-8")
    partial = folder / "model.safetensors.partial"
    save_file(_unique(checkpoint.model), str(partial), metadata={"format": "pt"})
    partial.replace(folder / "model.safetensors")


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; all faults at once.
    """
    missing = [name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder}: not a checkpoint folder, missing {', '.join(missing)}")
    faults: list[str] = []
    config = _attempt(faults, lambda: _read_config(folder / "config.json"))
    model = _attempt(faults, lambda: _make_model(config, folder / "config.json")) if config else None
    weights = _attempt(faults, lambda: _read_weights(folder / "model.safetensors"))
    tokenizer = _attempt(faults, lambda: load_tokenizer(folder / "tokenizer.json"))
    samples = _attempt(faults, lambda: _read_samples(folder / SAMPLES))
    if model and weights is not None:
        faults += [f"{folder / 'model.safetensors'}: {fault}" for fault in _differences(model, weights)]
    if model and tokenizer and tokenizer.get_vocab_size() > model.config.vocabulary_size:
        pieces, size = tokenizer.get_vocab_size(), model.config.vocabulary_size
        faults.append(f"{folder / 'tokenizer.json'}: has {pieces:,} pieces, the model's vocabulary {size:,}")
    if faults or config is None or model is None or weights is None or tokenizer is None:
        raise CheckpointError("; ".join(faults))
    _assign(model, weights)
    languages = config["source_language"], config["target_language"]
    return Checkpoint(model.eval(), tokenizer, *languages, config.get("provenance", {}), samples or ())


def load_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy `weights` into `model`.

    Raises:
        CheckpointError: names or shapes differ; lists every missing, unexpected and misshapen weight.
    """
    if faults := _differences(model, weights):
        raise CheckpointError(f"{origin}: {'; '.join(faults)}")
    _assign(model, weights)


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1).

    Raises:
        CheckpointError: a folder's weights are missing, damaged, or other ones than the first folder's.
    """
    total: dict[str, Tensor] = {}
    for folder in folders:
        weights = _read_weights(folder / "model.safetensors")
        total = total or {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights.items()}
        if _shapes(weights) != _shapes(total):
            raise CheckpointError(f"{folder}: its weights are not those of {folders[0]}, there is no mean of the two")
        for name, tensor in weights.items():
            total[name] += tensor
    return {name: (tensor / len(folders)).float() for name, tensor in total.items()}


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def _differences(model: Transformer, weights: Mapping[str, Tensor]) -> list[str]:
    """Every missing, unexpected and misshapen weight."""
    expected = _unique(model)
    faults = [f"missing {name}" for name in sorted(expected.keys() - weights.keys())]
    faults += [f"unexpected {name}" for name in sorted(weights.keys() - expected.keys())]
    faults += [
        f"{name} has shape {list(weights[name].shape)}, expected {list(tensor.shape)}"
        for name, tensor in sorted(expected.items())
        if name in weights and weights[name].shape != tensor.shape
    ]
    return faults


def _assign(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)


def _attempt(faults: list[str], read: Callable[[], Result]) -> Result | None:
    """What `read` returns; a fault is noted and gives None."""
    try:
        return read()
    except (CheckpointError, CorpusError) as error:
        faults.append(str(error))
        return None


def _read_samples(path: Path) -> list[Pair]:
    return read_pairs([str(path)]) if path.exists() else []


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(str(path))
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error


def _make_model(config: Mapping[str, Any], path: Path) -> Transformer:
    try:
        return Transformer(TransformerConfig(**config["transformer"]))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: transformer: {error}") from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    if config.get("architecture") != ARCHITECTURE or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: architecture {config.get('architecture')!r} format {config.get('format')!r}; "
            f"supported: {ARCHITECTURE!r} format {FORMAT}"
        )
    kinds = {"transformer": dict, "source_language": str, "target_language": str}
    wrong = [name for name, kind in kinds.items() if not isinstance(config.get(name), kind)]
    if wrong:
        raise CheckpointError(f"{path}: missing or of the wrong type: {', '.join(wrong)}")
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
