"""Devices, processes and precision, through Lightning Fabric."""

import os
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException

from triptych_training.errors import RecipeError
from triptych_training.recipe import Recipe


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
        fabric = Fabric(accelerator="auto", devices=devices, num_nodes=machines, precision=_precision(recipe))
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise RecipeError(f"devices: {recipe.devices!r} cannot be used: {error}") from error
    fabric.launch()
    fabric.seed_everything(recipe.seed, verbose=False)
    return fabric


def _precision(recipe: Recipe) -> Any:
    bf16 = recipe.precision == "bf16" or (recipe.precision == "auto" and torch.cuda.is_available())
    return "bf16-mixed" if bf16 else "32-true"
