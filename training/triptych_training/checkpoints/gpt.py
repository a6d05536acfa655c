"""Checkpoint folders of decoder-only models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from triptych_training.checkpoints.folder import TOKENIZER, load_folder, save_folder
from triptych_training.data.tokenizer import END
from triptych_training.errors import CheckpointError
from triptych_training.models.gpt import Gpt, GptConfig

GPT = "triptych-gpt"


@dataclass(frozen=True)
class GptCheckpoint:
    """Trained decoder-only model with its tokenizer and metadata."""

    model: Gpt
    tokenizer: Tokenizer
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[str] = ()

    @property
    def end(self) -> int:
        """Id of the end of a text, which also stands before its beginning."""
        found = self.tokenizer.token_to_id(END)
        assert found is not None  # checked when a checkpoint is read
        return found


def save_gpt_checkpoint(checkpoint: GptCheckpoint, folder: Path) -> None:
    """Write `folder`."""
    members = {"gpt": asdict(checkpoint.model.config), "provenance": dict(checkpoint.provenance)}
    save_folder(folder, GPT, members, checkpoint.model, checkpoint.tokenizer, checkpoint.samples)


def load_gpt_checkpoint(folder: Path) -> GptCheckpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    config, model, parts = load_folder(folder, GPT, "gpt", lambda config: Gpt(GptConfig(**config["gpt"])))
    if parts["tokenizer"].token_to_id(END) is None:
        raise CheckpointError(f"{folder / TOKENIZER}: lacks {END}")
    samples = [text for text in parts["samples"] if isinstance(text, str)]
    return GptCheckpoint(model, parts["tokenizer"], config["provenance"], samples)
