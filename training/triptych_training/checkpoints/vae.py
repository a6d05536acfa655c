"""Checkpoint folders of variational autoencoders, which have no tokenizer."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from triptych_training.checkpoints.folder import load_folder, save_folder
from triptych_training.models.vae import Vae, VaeConfig

VAE = "triptych-vae"


@dataclass(frozen=True)
class VaeCheckpoint:
    """Trained variational autoencoder with its metadata."""

    model: Vae
    provenance: Mapping[str, Any] = field(default_factory=dict)


def save_vae_checkpoint(checkpoint: VaeCheckpoint, folder: Path) -> None:
    """Write `folder`."""
    members = {"vae": asdict(checkpoint.model.config), "provenance": dict(checkpoint.provenance)}
    save_folder(folder, VAE, members, checkpoint.model)


def load_vae_checkpoint(folder: Path) -> VaeCheckpoint:
    """Read a checkpoint folder; the model is in evaluation mode on the CPU.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """
    config, model, _ = load_folder(folder, VAE, "vae", lambda config: Vae(VaeConfig(**config["vae"])), tokenizer=False)
    return VaeCheckpoint(model, config["provenance"])
