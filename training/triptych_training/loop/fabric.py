"""Devices, processes and precision, through Lightning Fabric."""

import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision, Precision
from lightning_fabric.utilities.exceptions import MisconfigurationException

from triptych_training.errors import RecipeError
from triptych_training.loop.recipe import Recipe


def make_fabric(recipe: Recipe) -> Fabric:
    """A launched and seeded Fabric: one process a device.

    `torchrun` has started its processes already, on one machine or several.

    Raises:
        RecipeError: the devices cannot be used.
    """
    devices, machines = recipe.devices, 1
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        devices, machines = (str(here) if devices == "auto" else devices), everywhere // here
    try:
        fabric = Fabric(accelerator="auto", devices=devices, num_nodes=machines, plugins=_precision(recipe.precision))
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise RecipeError(f"devices: {recipe.devices!r} cannot be used: {error}") from error
    fabric.launch()
    fabric.seed_everything(recipe.seed, verbose=False)
    return fabric


def _precision(name: str) -> Precision | None:
    """What the arithmetic of a training step is done in; weights are float32 throughout. None: float32 too."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "auto":
        name = "bf16" if device == "cuda" else "fp32"
    if name == "fp32":
        return None
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # what is not in 16 bits may as well be in TensorFloat-32
    if name == "bf16":
        return MixedPrecision("bf16-mixed", device)
    # The trainer scales the loss itself (scaling.py): torch's scaler wants to own the steps of a single optimizer.
    return MixedPrecision("16-mixed", device, torch.amp.GradScaler(device, enabled=False))
