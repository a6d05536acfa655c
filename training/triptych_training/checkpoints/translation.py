"""Checkpoint folders: what training writes and export reads.

config.json         format, architecture, shapes, languages, training provenance
model.safetensors   weights
tokenizer.json      Hugging Face tokenizers format
samples.tsv         some validation pairs, for the exporter's parity check (optional)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from triptych_training.checkpoints.config import CONFIG, attempt, make_member, need_files, read_config, write_config
from triptych_training.checkpoints.weights import WEIGHTS, assign_weights, read_weights, save_weights, weight_faults
from triptych_training.data.batches import Ids
from triptych_training.data.corpus import Pair, read_pairs
from triptych_training.data.languages import Languages
from triptych_training.data.tokenizer import load_tokenizer, save_tokenizer, vocabulary_faults
from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.models.transformer import Transformer, TransformerConfig

ARCHITECTURE = "triptych-transformer"
SAMPLES = "samples.tsv"


@dataclass(frozen=True)
class Checkpoint:
    """A trained translation model with all that belongs to it.

    Of a model of several directions, `languages` has them all, and the two members name the first one, that of the samples.
    """

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Pair] = ()
    languages: Languages = field(default_factory=Languages)

    def prefix(self, target_language: str = "") -> Ids:
        """What stands in front of a source that is to be translated to a language; "": the only one.

        Raises:
            RecipeError: the model does not translate to it, or to several and none is named.
        """
        offered = self.languages.targets or (self.target_language,)
        if not target_language and len(offered) > 1:
            raise RecipeError(f"target_language: the model has several, name one of {', '.join(offered)}")
        code = target_language or self.target_language
        if code not in offered:
            raise RecipeError(f"target_language: {code!r} is none of the model's: {', '.join(offered)}")
        return [self.languages.targets[code]] if self.languages.targets else []


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write `folder`; the weights come last, so that a folder with weights is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    members = {
        "transformer": asdict(checkpoint.model.config),
        "source_language": checkpoint.source_language,
        "target_language": checkpoint.target_language,
        "provenance": dict(checkpoint.provenance),
    }
    if checkpoint.languages.targets:
        members["languages"] = checkpoint.languages.as_member()
    write_config(folder / CONFIG, ARCHITECTURE, members)
    save_tokenizer(checkpoint.tokenizer, folder / "tokenizer.json")
    if checkpoint.samples:
        lines = ["\t".join(text.replace("\t", " ") for text in pair) + "\n" for pair in checkpoint.samples]
        (folder / SAMPLES).write_text("".join(lines), encoding="utf-8")
    save_weights(checkpoint.model, folder)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; all faults at once.
    """
    need_files(folder, (CONFIG, WEIGHTS, "tokenizer.json"))
    faults: list[str] = []
    config = attempt(faults, lambda: _read_config(folder / CONFIG))
    model = attempt(faults, lambda: _make_model(config, folder / CONFIG)) if config else None
    weights = attempt(faults, lambda: read_weights(folder / WEIGHTS))
    tokenizer = attempt(faults, lambda: load_tokenizer(folder / "tokenizer.json"))
    samples = attempt(faults, lambda: _read_samples(folder / SAMPLES))
    spoken = attempt(faults, lambda: _read_languages(config, folder / CONFIG)) if config else None
    if model and weights is not None:
        faults += weight_faults(model, weights, folder / WEIGHTS)
    if model and tokenizer:
        faults += vocabulary_faults(tokenizer, model.config.vocabulary_size, folder / "tokenizer.json")
    if faults or config is None or model is None or weights is None or tokenizer is None:
        raise CheckpointError("; ".join(faults))
    assign_weights(model, weights)
    first = config["source_language"], config["target_language"]
    provenance = config.get("provenance", {})
    return Checkpoint(model.eval(), tokenizer, *first, provenance, samples or (), spoken or Languages())


def _read_samples(path: Path) -> list[Pair]:
    return read_pairs([str(path)]) if path.exists() else []


def _read_languages(config: Mapping[str, Any], path: Path) -> Languages:
    if "languages" not in config:
        return Languages()
    return make_member(path, "languages", lambda: Languages.parse(config["languages"]))


def _make_model(config: Mapping[str, Any], path: Path) -> Transformer:
    return make_member(path, "transformer", lambda: Transformer(TransformerConfig(**config["transformer"])))


def _read_config(path: Path) -> dict[str, Any]:
    return read_config(path, ARCHITECTURE, {"transformer": dict, "source_language": str, "target_language": str})
