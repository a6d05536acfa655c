"""Training of a variational autoencoder on folders of images (Kingma and Welling 2014)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from triptych_training.checkpoints.vae import VaeCheckpoint, save_vae_checkpoint
from triptych_training.data.batches import Indices
from triptych_training.data.images import ImageStore
from triptych_training.evaluation.metrics import bound_metrics
from triptych_training.evaluation.processes import total
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import VaeRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.vae import Vae, VaeConfig, divergence
from triptych_training.tasks.image_classification import FolderTask, open_images


def train_vae(recipe: VaeRecipe, shape: VaeConfig, out: Path, resume: bool = False) -> Path:
    """Train a variational autoencoder in the run folder `out`; returns the final checkpoint folder.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "vae", shape, resume)
    _, train, valid = open_images(fabric, recipe, folder, shape.image_size)
    return Trainer(fabric, recipe, folder, VaeTask(recipe, shape, train, valid)).run()


class VaeLoss(nn.Module):
    """Sum of the images' negative bounds, in float32: half precision has too few digits for log-probabilities."""

    def __init__(self, model: Vae) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, beta: Tensor) -> Tensor:
        """uint8 `[B, S, S, 3]` and `[]` -> scalar."""
        with torch.autocast(pixels.device.type, enabled=False):
            total: Tensor = self.model(pixels, beta).sum()
        return total


class VaeTask(FolderTask):
    """A variational autoencoder; the weight of the KL divergence rises from epoch to epoch."""

    headline = "bits_per_dimension"
    recipe: VaeRecipe
    model: Vae

    def __init__(self, recipe: VaeRecipe, shape: VaeConfig, train: ImageStore, valid: ImageStore) -> None:
        super().__init__(recipe, train, valid)
        self.model = Vae(shape)
        self.loss = VaeLoss(self.model)
        self._beta = 1.0  # of the epoch planned last

    def plan(self, epoch: int) -> list[Indices]:
        self._beta = min(1.0, (epoch + 1) / self.recipe.kl_warmup_epochs)
        return super().plan(epoch)

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        pixels = self.train.load(indices)
        if self.recipe.flip:
            mirrored = np.random.default_rng(seed).random(len(pixels)) < 0.5
            pixels[mirrored] = pixels[mirrored, :, ::-1]
        return torch.from_numpy(pixels), torch.tensor(self._beta)

    def validate(self) -> Mapping[str, float]:
        """Measure the bound, with one sample of q(z|x) for each image, and its KL divergence."""
        loss, kl = 0.0, 0.0
        for _, pixels in self.valid_batches():
            loss += float(self.model(pixels).sum())
            kl += float(divergence(self.model.encode(pixels)).sum())
        loss, kl = total(loss, kl)
        found = bound_metrics(loss, len(self.valid), self.model.config.dimensions)
        return {"loss": found["nats"], "kl": kl / len(self.valid), **found}

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        provenance = {**provenance, "training_images": len(self.train), "held_out_images": len(self.valid)}
        save_vae_checkpoint(VaeCheckpoint(self.model, provenance), folder)
