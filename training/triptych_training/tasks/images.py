"""Training on folders of images: classifiers (ViT, PVT, Swin Transformer, ResNet) and variational autoencoders."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checkpoints.encoder import (
    ImageConfig,
    ImagePreprocessing,
    TrainedImageClassifier,
    TrainedImageModel,
    image_member,
    make_image_model,
    save_image_checkpoint,
)
from triptych_training.checkpoints.vae import VaeCheckpoint, save_vae_checkpoint
from triptych_training.data.augmentation import augment, erase, mix
from triptych_training.data.batches import Indices
from triptych_training.data.images import ImageStore, check_images, describe_others, hold_out, read_folders, to_rgb
from triptych_training.evaluation.metrics import bound_metrics, ranked_metrics, share, total
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import FolderRecipe, ImageRecipe, VaeRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.vae import Vae, VaeConfig, divergence

MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)  # per channel, of pixels in [0, 1]; the ViT authors' values
VALID_BATCH = 256  # images
SAMPLE_IMAGES = 200  # validation images stored with the final checkpoint


def train_image_classifier(recipe: ImageRecipe, shape: ImageConfig, out: Path, resume: bool = False) -> Path:
    """Train an image classifier in the run folder `out`, or resume its training there; returns the final checkpoint folder.

    The number of classes of `shape` is replaced by the folders'.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, image_member(shape), shape, resume)
    classes, train, valid = open_images(fabric, recipe, folder, shape.image_size)
    return Trainer(fabric, recipe, folder, ImageTask(recipe, replace(shape, classes=len(classes)), classes, train, valid)).run()


def train_vae(recipe: VaeRecipe, shape: VaeConfig, out: Path, resume: bool = False) -> Path:
    """Train a variational autoencoder in the run folder `out`; returns the final checkpoint folder.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "vae", shape, resume)
    _, train, valid = open_images(fabric, recipe, folder, shape.image_size, least=1)
    return Trainer(fabric, recipe, folder, VaeTask(recipe, shape, train, valid)).run()


def open_images(
    fabric: Fabric, recipe: FolderRecipe, folder: RunFolder, size: int, least: int = 2
) -> tuple[list[str], ImageStore, ImageStore]:
    """Begin the run; return the names of at least `least` classes, and the images to train and to validate on."""
    images, classes = read_folders(recipe.train, least=least)
    if recipe.valid:
        held_out, _ = read_folders(recipe.valid, classes, least)
    else:
        images, held_out = hold_out(images, recipe.hold_out)
    threads = os.cpu_count() or 1
    if fabric.is_global_zero:
        check_images([*images, *held_out], threads)
        folder.begin()
    fabric.barrier()
    train, valid = (ImageStore(chosen, size, recipe.cache_gib * 2**30, threads) for chosen in (images, held_out))
    return classes, train, valid


def normalise(pixels: Tensor) -> Tensor:
    """Convert uint8 `[B, H, W, 3]` to the model's input, float `[B, 3, H, W]`."""
    return _standard(_unit(pixels))


def _unit(pixels: Tensor) -> Tensor:
    """Convert uint8 `[B, H, W, 3]` to float `[B, 3, H, W]` in [0, 1]."""
    return pixels.permute(0, 3, 1, 2).float() / 255


def _standard(images: Tensor) -> Tensor:
    mean, std = (torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std


class FolderTask:
    """Base class of tasks on folders of images; a unit is an image."""

    unit = "images"
    labels: Sequence[str] = ()
    model: nn.Module

    def __init__(self, recipe: FolderRecipe, train: ImageStore, valid: ImageStore) -> None:
        self.recipe, self.train, self.valid = recipe, train, valid

    def describe(self) -> str:
        return f"{len(self.train):,} images, {self._validation()}"

    def _validation(self) -> str:
        """Describe what is not trained on."""
        ignored = describe_others([*self.recipe.train, *self.recipe.valid])
        return ", ".join(filter(None, (f"{len(self.valid):,} held out", ignored)))

    def plan(self, epoch: int) -> list[Indices]:
        order = np.random.default_rng((self.recipe.seed, epoch)).permutation(len(self.train))
        size = min(self.recipe.batch_images, len(order))
        return [order[start : start + size] for start in range(0, len(order) - size + 1, size)]

    def weight(self, indices: Indices) -> int:
        return len(indices)

    def valid_batches(self) -> Iterator[tuple[range, Tensor]]:
        """Yield this process' part of the held-out images: their indices, and their pixels on the model's device."""
        device = next(self.model.parameters()).device
        for start in share(range(0, len(self.valid), VALID_BATCH)):
            indices = range(start, min(start + VALID_BATCH, len(self.valid)))
            yield indices, torch.from_numpy(self.valid.load(indices)).to(device)


class ImageTask(FolderTask):
    """Image classification."""

    headline = "accuracy"
    recipe: ImageRecipe
    model: TrainedImageModel

    def __init__(
        self, recipe: ImageRecipe, shape: ImageConfig, classes: Sequence[str], train: ImageStore, valid: ImageStore
    ) -> None:
        super().__init__(recipe, train, valid)
        self.labels = classes
        self.model = make_image_model(shape)

    def describe(self) -> str:
        return f"{len(self.train):,} images of {len(self.labels)} classes, {self._validation()}"

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        return torch.from_numpy(self.train.load(indices)), torch.from_numpy(self.train.labels[indices])

    def loss(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Augment uint8 `[B, H, W, 3]` on its device, and sum the images' cross-entropies."""
        recipe = self.recipe
        with torch.autocast(pixels.device.type, enabled=False):  # half precision cannot represent positions exactly
            images = _unit(pixels)
            images = augment(images, recipe.randaugment_operations, recipe.randaugment_magnitude, recipe.flip, recipe.translate)
            images, partners, own = mix(erase(_standard(images), recipe.erase), recipe.mixup, recipe.cutmix)
        logits = self.model(images.contiguous(memory_format=torch.channels_last)).float()  # faster convolutions
        loss = own * self._entropy(logits, labels)
        return loss + (1 - own) * self._entropy(logits, labels[partners]) if own < 1 else loss

    def _entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, label_smoothing=self.recipe.label_smoothing, reduction="sum")

    def validate(self) -> Mapping[str, float]:
        """Measure loss (nats per image) and accuracy, without augmentation."""
        loss, right, right5 = 0.0, 0.0, 0.0
        for indices, pixels in self.valid_batches():
            labels = torch.from_numpy(self.valid.labels[list(indices)]).to(pixels.device)
            logits = self.model(normalise(pixels)).float()
            loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
            best = logits.topk(min(5, len(self.labels))).indices == labels[:, None]
            right, right5 = right + int(best[:, 0].sum()), right5 + int(best.sum())
        loss, right, right5 = total(loss, right, right5)
        return {"loss": loss / len(self.valid), **ranked_metrics(int(right), int(right5), len(self.valid))}

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        size = self.model.config.image_size
        image = ImagePreprocessing(size, size, mean=MEAN, std=STD)
        provenance = {**provenance, "training_images": len(self.train), "held_out_images": len(self.valid)}
        samples = self._samples() if final else ()
        save_image_checkpoint(TrainedImageClassifier(self.model, self.labels, image, provenance, samples), folder)

    def _samples(self) -> list[bytes]:
        step = max(1, len(self.valid) // SAMPLE_IMAGES)
        return [_as_jpeg(self.valid.images[index].path) for index in range(0, len(self.valid), step)][:SAMPLE_IMAGES]


def _as_jpeg(path: Path) -> bytes:
    with Image.open(path) as image, BytesIO() as file:
        if image.format == "JPEG":  # whatever its name says: serving refuses a GIF
            return path.read_bytes()
        to_rgb(image).save(file, "JPEG", quality=95)
        return file.getvalue()


class VaeTask(FolderTask):
    """A variational autoencoder; the weight of the KL divergence rises from epoch to epoch."""

    headline = "bits_per_dimension"
    recipe: VaeRecipe
    model: Vae

    def __init__(self, recipe: VaeRecipe, shape: VaeConfig, train: ImageStore, valid: ImageStore) -> None:
        super().__init__(recipe, train, valid)
        self.model = Vae(shape)
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

    def loss(self, pixels: Tensor, beta: Tensor) -> Tensor:
        """Sum the negative bounds of uint8 `[B, S, S, 3]`."""
        with torch.autocast(pixels.device.type, enabled=False):  # half precision has too few digits for log-probabilities
            total: Tensor = self.model(pixels, beta).sum()
        return total

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
