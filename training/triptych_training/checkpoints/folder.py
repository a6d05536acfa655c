"""Files of checkpoint folders.

config.json         format, architecture, shape, provenance, and what else an architecture has
model.safetensors   weights
tokenizer.json      Hugging Face tokenizers format, of models that read text
samples.json        some validation texts, or pairs of texts, for the exporter's parity check (optional)

Files are replaced in one move, and the weights are written last: a folder with weights is complete. Loading reports all faults
of a folder in one error.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from triptych_training.data.files import replace_text, replacing
from triptych_training.data.tokenizer import load_tokenizer, save_tokenizer
from triptych_training.errors import CheckpointError, CorpusError

FORMAT = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
SAMPLES = "samples.json"
RESULT = "model"  # checkpoint folder inside a run folder
MOST_LISTED = 3  # differences of weights of each kind that an error lists

Config = dict[str, Any]
Result = TypeVar("Result")
Model = TypeVar("Model", bound=nn.Module)


def save_folder(
    folder: Path,
    architecture: str,
    members: Mapping[str, Any],
    model: nn.Module,
    tokenizer: Tokenizer | None = None,
    samples: Sequence[str | tuple[str, str]] = (),
    others: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Write a checkpoint folder: `members` are those of config.json, `others` the contents of other files by path."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"format": FORMAT, "architecture": architecture, **members}
    replace_text(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder / TOKENIZER)
    if samples:
        others = {SAMPLES: f"{json.dumps(list(samples), ensure_ascii=False, indent=0)}\n".encode(), **others}
    for name, content in others.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with replacing(folder / name) as partial:
            partial.write_bytes(content)
    save_weights(model, folder)


def read_config(path: Path, architecture: str, types: Mapping[str, type]) -> Config:
    """Read `path`, which must have the members and types of `types`.

    Raises:
        CheckpointError: the file cannot be read, is of another architecture or format, or members are missing or mistyped.
    """
    config = _read_ours(path, f"{architecture!r} format {FORMAT}")
    if config.get("architecture") != architecture or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: architecture {config.get('architecture')!r} format {config.get('format')!r}; "
            f"supported: {architecture!r} format {FORMAT}"
        )
    if wrong := [name for name, kind in types.items() if not isinstance(config.get(name), kind)]:
        raise CheckpointError(f"{path}: missing or of the wrong type: {', '.join(wrong)}")
    return config


def named_architecture(path: Path) -> str:
    """Return the architecture that a config.json names; empty if it cannot be read."""
    try:
        return str(_read_object(path).get("architecture", ""))
    except CheckpointError:
        return ""


def need_files(folder: Path, names: Sequence[str]) -> None:
    """Reject a folder that lacks one of `names`; raises CheckpointError, which lists the missing files."""
    if missing := [name for name in names if not (folder / name).is_file()]:
        inside = folder / RESULT
        hint = f"; there is a checkpoint in: {inside}" if (inside / WEIGHTS).is_file() else ""
        raise CheckpointError(f"{folder}: not a checkpoint folder, missing {', '.join(missing)}{hint}")


def load_folder(
    folder: Path,
    architecture: str,
    member: str,
    make: Callable[[Config], Model],
    types: Mapping[str, type] = MappingProxyType({}),
    readers: Mapping[str, Callable[[Config], Any]] = MappingProxyType({}),
    tokenizer: bool = True,
) -> tuple[Config, Model, dict[str, Any]]:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Args:
        architecture: which architecture config.json must name.
        member: its member with the model's shape.
        make: makes the model from config.json.
        types: the other required members.
        readers: read other parts of the checkpoint; they run only if config.json could be read.
        tokenizer: the folder must have a `tokenizer.json` that fits the model, and may have samples.

    Returns:
        config.json, the model, and the results of `readers`, with "tokenizer" and "samples".

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    need_files(folder, (CONFIG, WEIGHTS, TOKENIZER) if tokenizer else (CONFIG, WEIGHTS))
    path, faults = folder / CONFIG, list[str]()
    config = _attempt(faults, lambda: read_config(path, architecture, {member: dict, **types}))
    model = _attempt(faults, lambda: make_member(path, member, lambda: make(config))) if config is not None else None
    weights = _attempt(faults, lambda: read_weights(folder / WEIGHTS))
    if tokenizer:
        readers = {"samples": lambda _: _read_samples(folder / SAMPLES), **readers}
        readers = {"tokenizer": lambda _: load_tokenizer(folder / TOKENIZER), **readers}
    parts = {name: _attempt(faults, partial(read, config)) for name, read in readers.items()} if config is not None else {}
    if model is not None and weights is not None:
        faults += [f"{folder / WEIGHTS}: {fault}" for fault in _differences(model, weights)]
    if model is not None and (vocabulary := parts.get("tokenizer")) is not None:
        pieces, size = vocabulary.get_vocab_size(), cast(Any, model).config.vocabulary_size
        if pieces > size:
            faults.append(f"{folder / TOKENIZER}: has {pieces:,} pieces, the model's vocabulary {size:,}")
    if faults or config is None or model is None or weights is None:
        raise CheckpointError("; ".join(faults))
    _assign(model, weights)
    return {"provenance": {}, **config}, model.eval(), parts


def _attempt(faults: list[str], read: Callable[[], Result]) -> Result | None:
    """Call `read`; append its error to `faults` and return None if it fails."""
    try:
        return read()
    except (CheckpointError, CorpusError) as error:
        faults.append(str(error))
        return None


def make_member(path: Path, member: str, make: Callable[[], Result]) -> Result:
    """Call `make`, which builds something from a member of `path`.

    Raises:
        CheckpointError: the member's values are not valid.
    """
    try:
        return make()
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {member}: {error}") from error


def _read_ours(path: Path, supported: str) -> Config:
    """Read a config.json; raises CheckpointError if it cannot be read, or is that of a Hugging Face model."""
    config = _read_object(path)
    if "model_type" in config:
        raise CheckpointError(
            f"{path}: of a Hugging Face model ({config['model_type']}), which can be exported but not trained here; "
            f"supported: {supported}"
        )
    return config


def _read_object(path: Path) -> Config:
    try:
        config: Config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return config


def _read_samples(path: Path) -> Sequence[str | tuple[str, str]]:
    """Read texts for the parity check; none if the file is absent. Raises CheckpointError if it is damaged."""
    if not path.exists():
        return ()
    try:
        return [text if isinstance(text, str) else (str(text[0]), str(text[1])) for text in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError, IndexError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error


def save_weights(model: nn.Module, folder: Path) -> None:
    """Write `folder/model.safetensors`."""
    with replacing(folder / WEIGHTS) as partial:
        save_file(_unique_weights(model), str(partial), metadata={"format": "pt"})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read names and tensors of a safetensors file; raises CheckpointError if the file cannot be read, or is damaged."""
    try:
        return load_file(str(path))
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy `weights`, read from `origin`, into `model`.

    Raises:
        CheckpointError: names the first missing and unexpected weights and wrong shapes, and counts the others.
    """
    if faults := _differences(model, weights):
        raise CheckpointError(f"{origin}: {'; '.join(faults)}")
    _assign(model, weights)


def check_initial(folder: Path, member: str, kind: Mapping[str, Any]) -> None:
    """Check that a training can start from a checkpoint folder.

    Args:
        folder: the checkpoint.
        member: member of config.json that has the shape of such models.
        kind: other members and their values, such as the head.

    Raises:
        CheckpointError: the folder is no checkpoint of triptych_training, or one of another kind of model.
    """
    need_files(folder, (CONFIG, WEIGHTS))
    config = _read_ours(folder / CONFIG, "checkpoint folders of triptych train")
    own, wanted = config.get("head"), kind.get("head")
    if member not in config or own != wanted:
        names = (str(config.get("architecture")).removeprefix("triptych-"), own), (member, wanted)
        found, expected = (" for ".join(filter(None, name)) for name in names)
        raise CheckpointError(f"initial: {folder} is a checkpoint of {found}, this training of {expected}")
    for name, value in kind.items():
        if config.get(name) != value:
            raise CheckpointError(f"initial: {folder} was trained with {name} {config.get(name)}; this training has {value}")


def start_from(folder: Path, model: nn.Module, labels: Sequence[str]) -> bool:
    """Copy the weights of a checkpoint folder into `model`, whose classifier stays new if it has other classes, `labels`.

    Returns:
        Whether it stays new.

    Raises:
        CheckpointError: the checkpoint is damaged, or its weights do not fit.
    """
    known = _read_object(folder / CONFIG).get("labels")
    weights = read_weights(folder / WEIGHTS)
    own = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("classifier.")}
    other = bool(own) and known != list(labels)
    try:
        load_weights(model, {**weights, **(own if other else {})}, folder)
    except CheckpointError as error:
        raise CheckpointError(
            f"initial: its weights do not fit a model of this shape; leave out options of the shape ({error})"
        ) from error
    return other


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints (Vaswani et al. 2017, section 6.1).

    Raises:
        CheckpointError: a folder's weights are missing, damaged, or differ in name or shape from the first folder's.
    """
    total: dict[str, Tensor] = {}
    for folder in folders:
        weights = read_weights(folder / WEIGHTS)
        total = total or {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights.items()}
        if {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in total.items()}:
            raise CheckpointError(f"{folder}: cannot be averaged with {folders[0]}: names or shapes of weights differ")
        for name, tensor in weights.items():
            total[name] += tensor
    return {name: (tensor / len(folders)).float() for name, tensor in total.items()}


def _differences(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """List missing weights, unexpected ones and wrong shapes: of each kind the first ones, and how many more there are."""
    expected = _unique_weights(model)
    kinds = (
        [f"missing {name}" for name in sorted(expected.keys() - weights.keys())],
        [f"unexpected {name}" for name in sorted(weights.keys() - expected.keys())],
        [
            f"{name} has shape {list(weights[name].shape)}, expected {list(tensor.shape)}"
            for name, tensor in sorted(expected.items())
            if name in weights and weights[name].shape != tensor.shape
        ],
    )
    more = ([f"{len(found) - MOST_LISTED} more of this kind"] if len(found) > MOST_LISTED else [] for found in kinds)
    return [fault for found, rest in zip(kinds, more, strict=True) for fault in found[:MOST_LISTED] + rest]


def _assign(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)


def _unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights in float32 on the CPU; a tied matrix appears once, under its first name."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor.detach().to("cpu", torch.float32).contiguous()
    return unique
