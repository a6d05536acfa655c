"""Image classifiers of one size, trained for one time on growing parts of the same images."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from triptych_training.checkpoints.encoder import ImageConfig, make_image_model
from triptych_training.data.images import hold_out, read_folders
from triptych_training.loop.recipe import ImageRecipe
from triptych_training.models.pvt import PvtConfig
from triptych_training.models.resnet import ResNetConfig
from triptych_training.models.swin import SwinConfig
from triptych_training.models.vit import VitConfig
from triptych_training.tasks.images import train_image_classifier

from .runs import finished, fitting_width, loss_curve

SIDE, PATCH = 32, 4  # pixels
STEP = 8  # widths are multiples of it


def _pyramid(width: int) -> PvtConfig:
    return PvtConfig(
        2,
        SIDE,
        PATCH,
        merges=(2, 2),
        widths=(width, 2 * width, 4 * width),
        depths=(1, 1, 1),
        heads=(1, 2, 4),
        feedforward_ratios=(4, 4, 4),
        reductions=(4, 2, 1),
    )


ARCHITECTURES: dict[str, Callable[[int], ImageConfig]] = {  # of a width
    "ResNet": lambda width: ResNetConfig(2, SIDE, 1, widths=(width, 2 * width, 4 * width), depths=(1, 1, 1)),
    "ViT": lambda width: VitConfig(2, SIDE, PATCH, model_dim=width, heads=width // STEP, feedforward_dim=2 * width, layers=4),
    "Swin": lambda width: SwinConfig(2, SIDE, PATCH, model_dim=width, depths=(2, 2), heads=(2, 4), window_size=4),
    "PVT": _pyramid,
}


@dataclass(frozen=True)
class ImageOptions:
    """Data and budget, the same for each model."""

    folder: Path
    counts: tuple[int, ...]
    held_out: int
    minutes: float  # CPU time of a training, reading included
    parameters: int


def compare_images(options: ImageOptions, work: Path, names: Iterable[str], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Train and measure each of these architectures on each number of images, where there are no results yet."""
    cells = [(count, name) for count in options.counts for name in names]
    return [finished(work / f"{name}-{count}", partial(_measure, name, count, options, work), say) for count, name in cells]


def make_shape(name: str, parameters: int) -> ImageConfig:
    """Choose the width at which a model has about this number of parameters."""
    make = ARCHITECTURES[name]
    return make(fitting_width(range(STEP, 512, STEP), parameters, lambda width: count_parameters(make(width))))


def count_parameters(shape: ImageConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in make_image_model(shape).parameters())


def _measure(name: str, count: int, options: ImageOptions, work: Path, folder: Path) -> dict[str, Any]:
    train, valid = _link_images(options, count, work)
    recipe = ImageRecipe(
        train=(str(train),),
        valid=(str(valid),),
        batch_images=64,
        max_minutes=options.minutes,
        cpu_time=True,
        epochs=1_000_000,
        validate_every=1_000_000,
        optimizer="muon",
        learning_rate=2e-3,
        weight_decay=0.05,
        average=1,
        ema_decay=0.0,
        precision="fp32",
        devices="1",
    )
    shape = make_shape(name, options.parameters)
    train_image_classifier(recipe, shape, folder / "run", resume=True)
    return {"model": name, "images": count, "parameters": count_parameters(shape), **loss_curve(folder / "run", "images")}


def _link_images(options: ImageOptions, count: int, work: Path) -> tuple[Path, Path]:
    """Link `count` images, as many of each class, and those held out; return both folders."""
    images, classes = read_folders([str(options.folder)])
    rest, held_out = hold_out(images, options.held_out)
    each, numbers = count // len(classes), dict.fromkeys(range(len(classes)), 0)
    first = []
    for image in rest:
        numbers[image.label] += 1
        if numbers[image.label] <= each:
            first.append(image)
    folders = work / f"data-{count}", work / "data-valid"
    for folder, chosen in zip(folders, (first, held_out), strict=True):
        for image in chosen:
            link = folder / classes[image.label] / image.path.name
            link.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process may share the models
                link.symlink_to(image.path.resolve())
    return folders
