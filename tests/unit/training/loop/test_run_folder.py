"""The run folder: resuming, options, metrics, state."""

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.loop.recipe import FinetuningRecipe, PretrainingRecipe, Recipe, TranslationRecipe
from triptych_training.loop.run_folder import RunFolder

from ..toy import SHAPE, make_recipe

ALONE = {"architecture": "triptych-bert", "bert": {}, "head": "pretraining", "next_sentence": False}
QUESTIONS = {"architecture": "triptych-bert", "bert": {}, "head": "question-answering"}


@pytest.fixture
def recipe(tmp_path: Path) -> TranslationRecipe:
    return make_recipe(tmp_path)


@pytest.fixture
def run(tmp_path: Path, recipe: TranslationRecipe) -> Path:
    """Make the folder of a run that has saved its state."""
    folder = RunFolder(tmp_path / "run", recipe, "transformer", SHAPE, resume=False)
    folder.begin()
    folder.save_state({"position": {"step": 4}})
    return folder.root


def test_a_new_folder_is_written_when_the_training_begins(tmp_path: Path, recipe: TranslationRecipe) -> None:
    RunFolder(tmp_path / "run", recipe, "transformer", SHAPE, resume=False)
    assert not (tmp_path / "run").exists()
    folder = RunFolder(tmp_path / "run", recipe, "transformer", SHAPE, resume=False)
    folder.begin()
    folder.tokenizer.write_text("another vocabulary")
    folder.log({"kind": "note", "step": 0})
    RunFolder(tmp_path / "run", recipe, "transformer", SHAPE, resume=False).begin()
    assert [path.name for path in folder.root.iterdir()] == ["recipe.json"]


def test_a_folder_in_which_another_process_trains_is_rejected(tmp_path: Path, recipe: TranslationRecipe) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    for resume in (False, True):
        with pytest.raises(RecipeError, match=f"out: another process trains in {tmp_path}; wait until it ends"):
            RunFolder(tmp_path, recipe, "transformer", SHAPE, resume).begin()
    os.close(folder)


def test_a_folder_whose_weights_could_not_be_read_is_rejected(tmp_path: Path, recipe: TranslationRecipe) -> None:
    with pytest.raises(RecipeError, match="is not UTF-8, so weights could not be read there; name another folder"):
        RunFolder(tmp_path / "caf\udce9", recipe, "transformer", SHAPE, resume=False)


@pytest.mark.parametrize(
    ("kind", "member", "config", "message"),
    [
        (
            Recipe,
            "transformer",
            {"architecture": "triptych-gpt", "gpt": {}},
            "is a checkpoint of gpt, this training of transformer",
        ),
        (Recipe, "pvt", {"architecture": "triptych-vit", "vit": {}}, "is a checkpoint of vit, this training of pvt"),
        (PretrainingRecipe, "bert", ALONE, "was trained with next_sentence False; this training has True"),
        (
            PretrainingRecipe,
            "bert",
            QUESTIONS,
            "is a checkpoint of bert for question-answering, this training of bert for pretraining",
        ),
        (
            partial(FinetuningRecipe, head="text-classification", encoder="pretrained"),
            *(
                "bert",
                QUESTIONS,
                "is a checkpoint of bert for question-answering, this training of bert for text-classification",
            ),
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_rejected_before_the_data_is_read(
    tmp_path: Path, kind: Callable[..., Recipe], member: str, config: dict[str, Any], message: str
) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(json.dumps(config))
    files = {} if kind is Recipe else {"valid": ("none.txt",)}
    recipe = kind(train=("none.txt",), **files, initial=str(tmp_path))
    with pytest.raises(CheckpointError) as caught:
        RunFolder(tmp_path / "run", recipe, member, SHAPE, resume=False)
    assert str(caught.value) == f"initial: {tmp_path} {message}"


def test_a_folder_with_a_training_is_rejected_without_resume(run: Path, recipe: TranslationRecipe) -> None:
    with pytest.raises(RecipeError, match=f"out: {run} contains a training; continue it with --resume"):
        RunFolder(run, recipe, "transformer", SHAPE, resume=False)


@pytest.mark.parametrize(
    ("recipe_changes", "shape_changes", "message"),
    [
        ({"learning_rate": 0.5}, {}, "learning_rate was 0.01, is 0.5"),
        ({"optimizer": "muon", "seed": 2}, {}, "optimizer was 'adam', is 'muon'; seed was 1, is 2"),
        ({}, {"heads": 4}, "heads was 2, is 4"),
        ({}, {"dropout": 0.3, "norm": "pre"}, "norm was 'post', is 'pre'; dropout was 0.1, is 0.3"),
    ],
)
def test_resuming_another_training_is_rejected_with_all_differences(
    run: Path, recipe: TranslationRecipe, recipe_changes: dict[str, Any], shape_changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        RunFolder(run, replace(recipe, **recipe_changes), "transformer", replace(SHAPE, **shape_changes), resume=True)
    assert str(caught.value) == f"resume: {run} was started with other options: {message}"


def test_resuming_may_change_duration_and_devices_and_miss_options(run: Path, recipe: TranslationRecipe) -> None:
    RunFolder(
        run, replace(recipe, epochs=9, average=1, devices="auto", save_steps=1), "transformer", SHAPE, resume=True
    ).begin()
    assert json.loads((run / "recipe.json").read_text())["epochs"] == 9
    options = json.loads((run / "recipe.json").read_text())
    del options["clip_norm"]
    (run / "recipe.json").write_text(json.dumps(options))
    RunFolder(run, recipe, "transformer", SHAPE, resume=True)


@pytest.mark.parametrize("prefix", ["", "en:xx="])
def test_a_training_whose_files_were_moved_is_resumed(tmp_path: Path, recipe: TranslationRecipe, prefix: str) -> None:
    languages = {"source_language": "", "target_language": ""} if prefix else {}
    recipe = replace(recipe, train=(prefix + recipe.train[0],), valid=(prefix + recipe.valid[0],), **languages)
    folder = RunFolder(tmp_path / "run", recipe, "transformer", SHAPE, resume=False)
    folder.begin()
    folder.tokenizer.write_text("{}")
    folder.save_state({})
    made_of = folder.digest()
    (tmp_path / "moved").mkdir()
    there = (tmp_path / "train.tsv").rename(tmp_path / "moved/pairs.tsv")
    moved = replace(recipe, train=(f"{prefix}{there}",))
    folder = RunFolder(folder.root, moved, "transformer", SHAPE, resume=True)
    folder.begin()
    assert folder.digest() == made_of  # no need to tokenize again
    assert json.loads(folder.options.read_text())["train"] == [*moved.train]
    RunFolder(folder.root, moved, "transformer", SHAPE, resume=True)
    (tmp_path / "train.tsv").write_text("a\tb\n")
    with pytest.raises(RecipeError, match=rf"train was \['{prefix}{there}'\], is \['{prefix}{tmp_path}/train\.tsv'\]"):
        RunFolder(folder.root, recipe, "transformer", SHAPE, resume=True)


@pytest.mark.parametrize("architecture", ["bert", "vit"])
def test_the_training_of_another_architecture_is_not_resumed(run: Path, recipe: TranslationRecipe, architecture: str) -> None:
    with pytest.raises(RecipeError, match=f"contains the training of another model, not of a {architecture}"):
        RunFolder(run, recipe, architecture, SHAPE, resume=True)


def test_state_and_records_are_restored_and_damage_is_named(run: Path, recipe: TranslationRecipe) -> None:
    folder = RunFolder(run, recipe, "transformer", SHAPE, resume=True)
    for kind, step in (("note", 0), ("train", 2), ("epoch", 4), ("final", 4), ("train", 6)):
        folder.log({"kind": kind, "step": step, "epoch": 1})
    with open(folder.metrics, "a") as file:
        file.write('{"comment": "of the user"}\n5\n{"kind": "tra')
    folder.rewind(4, 1)
    assert [(r["kind"], r["step"]) for r in folder.records()] == [("note", 0), ("train", 2), ("epoch", 4)]
    folder = RunFolder(run, recipe, "transformer", SHAPE, resume=True)
    folder.save_state({"model": {"weight": torch.ones(2)}})
    state = folder.load_state()
    assert state is not None
    assert torch.equal(state["model"]["weight"], torch.ones(2))
    folder.state.write_bytes(folder.state.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"state\.pt: damaged"):
        folder.load_state()
    without_run = json.dumps({k: v for k, v in json.loads((run / "recipe.json").read_text()).items() if k != "run"})
    for text in ("{", "[]", without_run):
        (run / "recipe.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"recipe\.json: damaged"):
            RunFolder(run, recipe, "transformer", SHAPE, resume=True)


def test_a_full_disk_is_named_when_metrics_are_logged(run: Path, recipe: TranslationRecipe) -> None:
    folder = RunFolder(run, recipe, "transformer", SHAPE, resume=True)
    folder.metrics.symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: cannot be written \(No space left on device\)"):
        folder.log({"kind": "note", "step": 0})


def test_a_kill_while_checkpoints_are_removed_leaves_a_folder_to_resume(
    run: Path, recipe: TranslationRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(run, recipe, "transformer", SHAPE, resume=True)
    for number in (1, 2):
        folder.epoch(number).mkdir(parents=True)
        (folder.epoch(number) / "model.safetensors").touch()
        (folder.epoch(number) / "config.json").write_text(json.dumps({"provenance": {"run": folder.run}}))
    monkeypatch.setattr("shutil.rmtree", lambda path: (path / "config.json").unlink())
    folder.prune(2, keep=1)
    assert folder.saved(2) == [2]
    (folder.epoch(2) / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"config\.json: damaged \(not a JSON object with provenance\)"):
        folder.saved(2)
