"""Training of a variational autoencoder, from image folders to checkpoint."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from triptych_training.checkpoints.vae import load_vae_checkpoint
from triptych_training.data.images import ImageStore, read_folders
from triptych_training.loop.recipe import VaeRecipe
from triptych_training.models.vae import VaeConfig
from triptych_training.tasks.images import VaeTask, train_vae

from ..runs import records
from ..toy_pictures import write_picture, write_pictures

SHAPE = VaeConfig(image_size=8, width=8, latent_dim=4)


def make_recipe(folder: Path) -> VaeRecipe:
    train = (write_pictures(folder / "pictures", each=20),)
    fixed = {"hold_out": 6, "batch_images": 9, "epochs": 25, "validate_every": 25, "learning_rate": 2e-2, "warmup_steps": 0}
    return VaeRecipe(train=train, devices="1", precision="fp32", kl_warmup_epochs=20, clip_norm=0, **fixed)


@pytest.mark.full
def test_three_colours_are_learnt(tmp_path: Path) -> None:
    train_vae(make_recipe(tmp_path), SHAPE, tmp_path / "run")
    bits = [record["valid_bits_per_dimension"] for record in records(tmp_path / "run") if record["kind"] == "epoch"]
    assert bits[0] < 7.8  # without the three colours it is 8.4


def test_the_bound_rises_and_the_checkpoint_has_it(tmp_path: Path) -> None:
    recipe = replace(make_recipe(tmp_path), epochs=4, validate_every=1)
    checkpoint = load_vae_checkpoint(train_vae(recipe, SHAPE, tmp_path / "run"))
    bits = [record["valid_bits_per_dimension"] for record in records(tmp_path / "run") if record["kind"] == "epoch"]
    assert bits[-1] < bits[0] - 0.1
    assert checkpoint.model.config == SHAPE
    assert checkpoint.provenance["metrics"]["bits_per_dimension"] == bits[-1]


def test_images_of_one_folder_are_enough(tmp_path: Path) -> None:
    for number in range(9):
        write_picture(tmp_path / f"pictures/all/{number}.png", (30, 40, 200), seed=number)
    recipe = replace(
        make_recipe(tmp_path / "colours"), train=(str(tmp_path / "pictures"),), hold_out=3, batch_images=6, epochs=1
    )
    assert load_vae_checkpoint(train_vae(recipe, SHAPE, tmp_path / "run")).provenance["held_out_images"] == 3


def test_the_divergence_gains_weight_and_half_of_the_images_are_mirrored(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    store = ImageStore(read_folders(recipe.train)[0], 8, 1e9, 1)
    task = VaeTask(recipe, SHAPE, store, store)
    weights = []
    for epoch in (0, 9, 19, 29):
        chosen = task.plan(epoch)[0]
        pixels, beta = task.batch(chosen, seed=epoch)
        weights.append(round(float(beta), 6))
        before = store.load(chosen)
        mirrored = [np.array_equal(one, other[:, ::-1]) for one, other in zip(pixels.numpy(), before, strict=True)]
        kept = [np.array_equal(one, other) for one, other in zip(pixels.numpy(), before, strict=True)]
        assert mirrored == [not each for each in kept]
        assert 0 < sum(kept) < len(kept)
    assert weights == [0.05, 0.5, 1, 1]
