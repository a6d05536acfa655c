"""ViT training from image folders to checkpoint; test_vae has that of autoencoders."""

from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from triptych_training.checkpoints.encoder import load_image_checkpoint
from triptych_training.data.images import ImageStore, read_folders
from triptych_training.errors import CheckpointError, CorpusError, RecipeError
from triptych_training.loop.recipe import ImageRecipe
from triptych_training.models.vit import Vit, VitConfig
from triptych_training.tasks.images import ImageTask, _as_jpeg, normalise, train_image_classifier

from ..runs import assert_resumed, files, records
from ..toy_pictures import COLOURS, write_pictures

SHAPE = VitConfig(2, 8, 4, model_dim=16, heads=2, feedforward_dim=24, layers=2, drop_path=0.1, stem="convolution")
Finished = tuple[ImageRecipe, Path]
STEPS = 18  # of `finished`, which ends in its second epoch


def make_recipe(folder: Path, **changes: Any) -> ImageRecipe:
    recipe = ImageRecipe(
        train=(write_pictures(folder / "train", each=40),),
        hold_out=12,
        batch_images=10,
        epochs=2,
        max_steps=STEPS,
        learning_rate=1e-2,
        warmup_steps=4,
        label_smoothing=0.05,
        mixup=0.2,
        cutmix=0.5,
        average=1,
        ema_decay=0.8,
        save_steps=6,
        precision="fp32",
        devices="1",
    )
    return replace(recipe, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Train with all random parts: augmentation, mixing, drop path."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = make_recipe(folder)
    train_image_classifier(recipe, SHAPE, folder / "run")
    return recipe, folder / "run"


def make_task(folder: Path, **changes: Any) -> ImageTask:
    recipe = make_recipe(folder, **changes)
    pictures, classes = read_folders(recipe.train)
    store = ImageStore(pictures, 8, 1e6, 1)
    return ImageTask(recipe, replace(SHAPE, classes=3), classes, store, store)


def test_three_colours_are_learnt_and_the_run_has_files_and_provenance(finished: Finished) -> None:
    last = records(finished[1])[-1]
    assert last["kind"] == "final"
    assert last["valid_accuracy"] > 0.9
    assert last["valid_top5"] == 1
    assert last["valid_loss"] < 0.7
    recipe, run = finished
    epochs = {f"checkpoints/epoch-{n:04d}/{name}" for n in (1, 2) for name in ("config.json", "model.safetensors")}
    model = {"model/config.json", "model/model.safetensors", *(f"model/samples/{n:04d}.jpg" for n in range(12))}
    assert files(run) == {"recipe.json", "metrics.jsonl", "loss.png", "state.pt"} | epochs | model
    checkpoint = load_image_checkpoint(run / "model")
    assert list(checkpoint.labels) == sorted(COLOURS)
    assert checkpoint.model.config == replace(SHAPE, classes=3)
    assert (checkpoint.image.height, checkpoint.image.width, checkpoint.image.resize) == (8, 8, "stretch")
    assert checkpoint.provenance["steps"] == STEPS
    assert (checkpoint.provenance["training_images"], checkpoint.provenance["held_out_images"]) == (108, 12)
    assert checkpoint.provenance["metrics"].keys() == {"loss", "accuracy", "top5", "images"}
    assert {Image.open(BytesIO(sample)).format for sample in checkpoint.samples} == {"JPEG"}
    with pytest.raises(RecipeError, match=r"resume: .* other options: valid was \[\], is \["):  # images would change sides
        train_image_classifier(replace(recipe, valid=recipe.train), SHAPE, run, resume=True)


@pytest.mark.parametrize("kept", [("blue", "green"), ("blue", "green", "pink")])
def test_a_training_may_begin_with_a_model_of_other_classes(finished: Finished, tmp_path: Path, kept: tuple[str, ...]) -> None:
    initial = finished[1] / "model"
    recipe = make_recipe(tmp_path, initial=str(initial), max_steps=1, learning_rate=1e-12, ema_decay=0.0)
    (tmp_path / "train/red").rename(tmp_path / "train/pink" if "pink" in kept else tmp_path / "red")
    made = dict(load_image_checkpoint(train_image_classifier(recipe, SHAPE, tmp_path / "run")).model.named_parameters())
    before = dict(load_image_checkpoint(initial).model.named_parameters())
    assert made.keys() == before.keys()
    others = {name for name in made if made[name].shape != before[name].shape or not torch.allclose(made[name], before[name])}
    assert others == {"classifier.weight", "classifier.bias"}
    assert made["classifier.bias"].shape == (len(kept),)
    assert records(tmp_path / "run")[0] == {"kind": "note", "step": 0, "new_classifier": True}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "theirs/model.safetensors").touch()
    with pytest.raises(CheckpointError, match=r"theirs/config\.json: of a Hugging Face model \(vit\), .* not trained here"):
        train_image_classifier(replace(recipe, initial=str(tmp_path / "theirs")), SHAPE, tmp_path / "other")


def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(finished: Finished, tmp_path: Path) -> None:
    recipe, whole = finished
    train = partial(train_image_classifier, recipe, SHAPE)
    assert_resumed(train, tmp_path / "run", whole, "_step", 15)  # killed in the second epoch


def test_a_sample_is_a_jpeg_whatever_its_name(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", "GIF")
    assert Image.open(BytesIO(_as_jpeg(tmp_path / "a.jpg"))).format == "JPEG"


def test_files_and_folders_that_are_passed_over_are_counted(tmp_path: Path) -> None:
    valid = write_pictures(tmp_path / "valid", each=1)
    task = make_task(tmp_path, valid=(valid,))
    assert task.describe() == "120 images of 3 classes, 120 held out"
    for name in ("train/red/a.gif", "train/red/.DS_Store", "train/notes.txt", "valid/blue/b.bmp"):
        (tmp_path / name).write_bytes(b"")
    write_pictures(tmp_path / "train/green/nested", each=1)
    others = "3 other files and folders in the folders of classes"
    assert task.describe().endswith(f"120 held out, {others} and 1 files beside these folders are ignored")


def test_validation_folders_are_used_for_validation_only(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, valid=(write_pictures(tmp_path / "valid", each=2),), max_steps=1, ema_decay=0.0)
    checkpoint = load_image_checkpoint(train_image_classifier(recipe, SHAPE, tmp_path / "run"))
    assert (checkpoint.provenance["training_images"], checkpoint.provenance["held_out_images"]) == (120, 6)
    (tmp_path / "valid/red").rename(tmp_path / "valid/pink")
    with pytest.raises(CorpusError, match="valid: pink: not among the classes of the training set"):
        train_image_classifier(recipe, SHAPE, tmp_path / "other")


def test_an_epoch_has_every_image_once_in_a_new_order(tmp_path: Path) -> None:
    task = make_task(tmp_path, batch_images=8)
    first, again, second = ([batch.tolist() for batch in task.plan(epoch)] for epoch in (0, 0, 1))
    assert first == again != second
    assert sorted(index for batch in first for index in batch) == list(range(120))
    assert [len(batch) for batch in make_task(tmp_path, batch_images=500).plan(0)] == [120]
    pixels, labels = task.batch(first[0], seed=1)
    assert labels.tolist() == [task.train.images[index].label for index in first[0]]
    assert (pixels.shape, pixels.dtype) == ((8, 8, 8, 3), torch.uint8)


def test_the_loss_weights_mixed_images_by_their_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"randaugment_operations": 0, "flip": False, "translate": 0.0, "mixup": 0.0, "cutmix": 0.0, "label_smoothing": 0.0}
    task = make_task(tmp_path, **off)
    task.model.eval()
    pixels, labels = torch.randint(256, (4, 8, 8, 3), dtype=torch.uint8), torch.tensor([0, 1, 2, 0])
    logs = task.model(normalise(pixels)).log_softmax(-1)
    rows = torch.arange(4)
    torch.testing.assert_close(task.loss(pixels, labels), -logs[rows, labels].sum())
    partners = torch.tensor([1, 2, 3, 0])
    monkeypatch.setattr("triptych_training.tasks.images.mix", lambda images, mixup, cutmix: (images, partners, 0.75))
    expected = -(0.75 * logs[rows, labels] + 0.25 * logs[rows, labels[partners]]).sum()
    torch.testing.assert_close(task.loss(pixels, labels), expected)


def test_images_are_augmented_in_full_precision(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    class Watch(Vit):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images)
            return super().forward(images)

    task = make_task(tmp_path, erase=0.5, randaugment_operations=2)
    task.model = Watch(replace(SHAPE, classes=3))
    pixels, labels = torch.randint(256, (12, 8, 8, 3), dtype=torch.uint8), torch.zeros(12, dtype=torch.long)
    for enabled in (True, False):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            task.loss(pixels, labels)
    assert seen[0].dtype == torch.float32
    assert torch.equal(seen[0], seen[1])
