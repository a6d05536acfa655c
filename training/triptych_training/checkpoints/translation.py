"""Checkpoint folders of translation models.

Their config.json also has the languages; samples.tsv, some validation pairs, takes the place of samples.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from triptych_training.checkpoints.folder import CONFIG, Config, load_folder, make_member, named_architecture, save_folder
from triptych_training.data.batches import Ids
from triptych_training.data.corpus import Pair, read_pairs
from triptych_training.data.languages import ModelLanguages
from triptych_training.errors import RecipeError
from triptych_training.models.rnn import Rnn, RnnConfig, TranslationModel, make_translation_model
from triptych_training.models.transformer import TransformerConfig

ARCHITECTURE = "triptych-transformer"
RNN = "triptych-rnn"
CONFIGS = {ARCHITECTURE: ("transformer", TransformerConfig), RNN: ("rnn", RnnConfig)}  # member of config.json, and its type
SAMPLES = "samples.tsv"


@dataclass(frozen=True)
class Checkpoint:
    """Trained translation model with its tokenizer and metadata.

    A model of several directions lists all its languages in `languages`; `source_language` and `target_language` are then its
    first direction, which is also that of the samples.
    """

    model: TranslationModel
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Pair] = ()
    languages: ModelLanguages = field(default_factory=ModelLanguages)

    def check_source(self, code: str) -> None:
        """Check a source language ("": not named). Raises RecipeError: the model does not translate from it."""
        sources = self.languages.sources or (self.source_language,)
        if code and code not in sources:
            raise RecipeError(f"source_language: the model does not translate from {code!r}, but from {', '.join(sources)}")

    def prefix(self, target_language: str = "") -> Ids:
        """Return the ids to put before a source that is to be translated to `target_language` ("": the only one).

        Raises:
            RecipeError: the model does not translate to it, or has several targets and none is named.
        """
        targets = self.languages.targets or (self.target_language,)
        if not target_language and len(targets) > 1:
            raise RecipeError(f"target_language: the model has several; set one of {', '.join(targets)}")
        code = target_language or self.target_language
        if code not in targets:
            raise RecipeError(f"target_language: the model does not translate to {code!r}; set one of {', '.join(targets)}")
        return [self.languages.targets[code]] if self.languages.targets else []


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write `folder`."""
    architecture = RNN if isinstance(checkpoint.model, Rnn) else ARCHITECTURE
    members = {
        CONFIGS[architecture][0]: asdict(checkpoint.model.config),
        "source_language": checkpoint.source_language,
        "target_language": checkpoint.target_language,
        "provenance": dict(checkpoint.provenance),
    }
    if checkpoint.languages.targets:
        members["languages"] = asdict(checkpoint.languages)
    lines = ["\t".join(text.replace("\t", " ") for text in pair) + "\n" for pair in checkpoint.samples]
    samples = {SAMPLES: "".join(lines).encode()} if lines else {}
    save_folder(folder, architecture, members, checkpoint.model, checkpoint.tokenizer, others=samples)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    path, samples = folder / CONFIG, folder / SAMPLES
    architecture = RNN if named_architecture(path) == RNN else ARCHITECTURE
    member, kind = CONFIGS[architecture]

    def read_languages(config: Config) -> ModelLanguages:
        if "languages" not in config:
            return ModelLanguages()
        return make_member(path, "languages", lambda: ModelLanguages.parse(config["languages"]))

    config, model, parts = load_folder(
        folder,
        architecture,
        member,
        lambda config: make_translation_model(kind(**config[member])),
        {"source_language": str, "target_language": str},
        {"samples": lambda _: read_pairs([str(samples)]) if samples.exists() else (), "languages": read_languages},
    )
    direction = config["source_language"], config["target_language"]
    return Checkpoint(model, parts["tokenizer"], *direction, config["provenance"], parts["samples"], parts["languages"])
