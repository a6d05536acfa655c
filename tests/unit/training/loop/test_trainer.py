"""Whole trainings of a tiny translation model; resuming; optimizer steps."""

import shutil
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.errors import CheckpointError, CorpusError, DivergedError, RecipeError
from triptych_training.loop.recipe import TranslationRecipe
from triptych_training.loop.trainer import StepData, Trainer
from triptych_training.tasks.translation import train_translation

from ..runs import assert_resumed, assert_same, files, kill, records
from ..toy import PAIRS, TRAINED, WORDS, Finished, make_recipe, write_pairs

STEPS = 12  # of `make_recipe`


@pytest.fixture
def recipe(tmp_path: Path) -> TranslationRecipe:
    return make_recipe(tmp_path)


def test_a_finished_run_has_the_documented_files_metrics_and_checkpoint(finished: Finished) -> None:
    recipe, run = finished
    checkpoint = {"config.json", "model.safetensors", "tokenizer.json"}
    epochs = {f"checkpoints/epoch-{n:04d}/{name}" for n in (1, 2) for name in checkpoint}
    model = {f"model/{name}" for name in (*checkpoint, "samples.tsv")}
    arrays = {"pairs/ids.bin", "pairs/offsets.npy", "pairs/pairs.json"}
    assert files(run) == {"recipe.json", "tokenizer.json", "metrics.jsonl", "loss.png", "state.pt"} | arrays | epochs | model
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    lines = records(run)
    assert [r["step"] for r in lines if r["kind"] == "train"] == [5, 10]
    assert [(r["epoch"], r["step"]) for r in lines if r["kind"] == "epoch"] == [(1, STEPS // 2), (2, STEPS)]
    assert [(r["kind"], r["averaged_epochs"]) for r in lines[-1:]] == [("final", 2)]
    valid = {f"valid_{name}" for name in ("loss", "bleu", "chrf", "tokens", "pairs")}
    for line in lines:
        wanted = {
            "train": {"loss", "tokens_per_second", "learning_rate"},
            "epoch": {"train_loss"} | valid,
            "final": {"averaged_epochs"} | valid,
        }[line["kind"]]
        assert line.keys() == {"kind", "epoch", "step_in_epoch", "step", "seconds"} | wanted
    rate = next(r["learning_rate"] for r in lines if r["step"] == 5)
    assert rate == pytest.approx(recipe.learning_rate * (1 / 6) ** 0.5)  # the warm-up is a tenth of the steps
    first, second = (r["valid_loss"] for r in lines if r["kind"] == "epoch")
    assert second < first < 6
    checkpoint = load_checkpoint(run / "model")
    assert list(checkpoint.samples) == PAIRS[::8]
    assert checkpoint.provenance["steps"] == STEPS
    assert checkpoint.provenance["training_pairs"] == len(PAIRS)
    assert checkpoint.provenance["recipe"]["optimizer"] == recipe.optimizer
    assert checkpoint.provenance["metrics"]["pairs"] == len(PAIRS[::8])
    means = [load_checkpoint(run / f"checkpoints/epoch-000{n}").model.projection.weight for n in (1, 2)]
    assert torch.allclose(checkpoint.model.projection.weight, (means[0] + means[1]) / 2)


@pytest.mark.parametrize(
    ("method", "call", "save_steps"),
    [
        pytest.param("_step", 3, 4, id="before any state was saved", marks=pytest.mark.full),
        pytest.param("_end_epoch", 1, 6, id="between an epoch's last step and its validation"),
        pytest.param("_save_state", 2, 6, id="between an epoch's line in metrics.jsonl and its state"),
        pytest.param("_step", 10, 4, id="within the second epoch"),
        pytest.param("_end_epoch", 2, 6, id="between the last step and its validation", marks=pytest.mark.full),
        pytest.param("_finish", 1, 4, id="at the final validation"),
    ],
)
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(
    finished: Finished, tmp_path: Path, method: str, call: int, save_steps: int
) -> None:
    recipe, whole = finished
    train = partial(train_translation, replace(recipe, save_steps=save_steps), TRAINED)
    assert_resumed(train, tmp_path / "run", whole, method, call)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_saves_the_state_of_a_run(
    finished: Finished, tmp_path: Path, number: signal.Signals, error: type[BaseException]
) -> None:
    recipe, whole = finished
    usual = signal.default_int_handler if number == signal.SIGINT else lambda *_: sys.exit()
    original, before = Trainer._step, signal.signal(number, usual)  # a shell's background jobs ignore SIGINT

    def interrupted(self: Trainer, data: StepData) -> Tensor:
        for _ in range(2):  # timeout(1) signals its child, then its group
            signal.raise_signal(number)
        return original(self, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted)
        with pytest.raises(error):
            train_translation(recipe, TRAINED, tmp_path / "run")
    signal.signal(number, before)
    assert torch.load(tmp_path / "run/state.pt", weights_only=True)["position"]["step"] == 1
    if number == signal.SIGINT:
        train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
        assert_same(tmp_path / "run", whole)


def test_no_state_is_saved_after_a_gradient_that_is_not_finite(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, whole = finished
    original = Trainer._update

    def overflow(self: Trainer, units: int) -> Tensor:
        if self.position.step == 7:  # the last one before a state is saved
            next(p.grad for p in self.task.model.parameters() if p.grad is not None)[0] = torch.inf
        return original(self, units)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", overflow)
        with pytest.raises(DivergedError, match=r"step 8: .* gradient is inf"):
            train_translation(recipe, TRAINED, tmp_path / "run")
    train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    assert_same(tmp_path / "run", whole)


def test_checkpoints_and_states_of_other_runs_are_not_used(finished: Finished, tmp_path: Path) -> None:
    recipe, whole = finished
    kill(lambda: train_translation(replace(recipe, seed=9), TRAINED, tmp_path / "run"), "_save_state", 3)  # leaves a checkpoint
    (tmp_path / "run/state.pt").unlink()
    train_translation(replace(recipe, validate_every=2), TRAINED, tmp_path / "run")
    assert records(tmp_path / "run")[-1]["averaged_epochs"] == 1
    shutil.copy(whole / "state.pt", tmp_path / "run/state.pt")
    with pytest.raises(CheckpointError, match=r"state\.pt: of run .* restore this run's state"):
        train_translation(replace(recipe, validate_every=2), TRAINED, tmp_path / "run", resume=True)


def test_removed_checkpoints_are_noticed(finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, whole = finished
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")
    train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    assert f"average: 1 of 2 checkpoints are left in {tmp_path}/run/checkpoints\n" in capsys.readouterr().err


def test_a_last_checkpoint_that_is_better_than_the_mean_is_named(
    recipe: TranslationRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_translation(recipe, TRAINED, tmp_path / "run")
    last, mean = (record["valid_loss"] for record in records(tmp_path / "run")[-2:])
    assert last < mean
    hint = f"the last checkpoint alone has a validation loss of {last:.3f}; the same command with --resume --average 1"
    assert hint in capsys.readouterr().err
    train_translation(replace(recipe, average=1), TRAINED, tmp_path / "run", resume=True)
    assert records(tmp_path / "run")[-1]["valid_loss"] == last
    assert "alone" not in capsys.readouterr().err


def test_a_run_that_never_began_can_be_repaired_and_later_changes_are_noticed(
    recipe: TranslationRecipe, tmp_path: Path
) -> None:
    train = Path(recipe.train[0])
    good = train.read_text()
    train.write_text(f"{good}no tab\n")
    with pytest.raises(CorpusError, match="1 tab-separated fields"):
        train_translation(replace(recipe, vocabulary_size=300), TRAINED, tmp_path / "run", resume=True)
    train.write_text(good)
    recipe = replace(recipe, max_steps=2)
    assert load_checkpoint(train_translation(recipe, TRAINED, tmp_path / "run", resume=True)).provenance["steps"] == 2
    write_pairs(train, PAIRS[1:])
    with pytest.raises(RecipeError, match=r"resume: .*train\.tsv: changed since the training in .* began"):
        train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    (tmp_path / "run/recipe.json").unlink()
    before = files(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"recipe\.json: missing; state\.pt cannot be resumed without it"):
        train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    assert files(tmp_path / "run") == before


def test_a_state_of_another_training_is_rejected(finished: Finished, tmp_path: Path) -> None:
    recipe, whole = finished
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(RecipeError, match="took 1 batches per optimizer step, now it would take 2"):
        train_translation(replace(recipe, accumulate=2), TRAINED, tmp_path / "run", resume=True)
    assert records(tmp_path / "run") == records(whole)
    state = torch.load(tmp_path / "run/state.pt", weights_only=True)
    for name in ("position", "warmup", "elapsed", "validation", "batches_per_step"):
        torch.save(_without(state, name), tmp_path / "run/state.pt")
        with pytest.raises(CheckpointError, match=r"state\.pt: does not belong to this model and recipe"):
            train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    for damaged in (_without(state, "run"), [state]):
        torch.save(damaged, tmp_path / "run/state.pt")
        with pytest.raises(CheckpointError, match=r"state\.pt: damaged \(not a dictionary with run\)"):
            train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    del state["model"]["encoder.embedding.tokens.weight"]
    torch.save(state, tmp_path / "run/state.pt")
    with pytest.raises(CheckpointError, match=r"state\.pt: does not belong to this model and recipe"):
        train_translation(recipe, TRAINED, tmp_path / "run", resume=True)
    assert records(tmp_path / "run") == records(whole)


def _without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {member: value for member, value in state.items() if member != name}


class Recorder:
    """Optimizer that only records gradients."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.param_groups: list[dict[str, Any]] = []
        self.gradients: list[Tensor] = []

    def step(self) -> None:
        self.gradients = [p.grad.clone() for p in self.model.parameters() if p.grad is not None]

    def zero_grad(self, set_to_none: bool) -> None:
        self.model.zero_grad(set_to_none)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """Make a trainer that has not started; its pairs have unequal lengths, in which source and target differ."""
    held: list[Trainer] = []
    monkeypatch.setattr(Trainer, "run", lambda trainer: held.append(trainer))  # noqa: PLW0108 - a function becomes a method
    pairs = [(" ".join(WORDS[: i % 5 + 1]), " ".join(WORDS[i % 4 :])) for i in range(20)]
    recipe = make_recipe(tmp_path, clip_norm=0.0, train=(write_pairs(tmp_path / "unequal.tsv", pairs),))
    train_translation(recipe, replace(TRAINED, dropout=0.0), tmp_path / "run")
    return held[0]


def step(trainer: Trainer, batches: list[list[int]]) -> float:
    """Take an optimizer step over these pairs and return its loss."""
    return float(trainer._step(trainer._prepare([np.array(rows) for rows in batches], trainer.position.step)))


def test_accumulated_batches_have_the_gradient_of_one_batch(trainer: Trainer) -> None:
    recorder = Recorder(trainer.task.model)
    trainer.optimizers = [recorder]  # type: ignore[list-item]
    chosen = [0, 1, 7, 10, 13, 19]
    source, _, labels, _ = trainer.task.batch(np.array(chosen), 0)
    assert all((side == TRAINED.pad_id).any() for side in (source, labels))
    losses, gradients = [], []
    for batches in ([chosen], [chosen[:3], chosen[3:]], [[i] for i in chosen]):
        losses.append(step(trainer, batches))
        gradients.append(recorder.gradients)
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-5)
    for other in gradients[1:]:
        for expected, gradient in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_the_loss_is_a_mean_over_tokens_and_gradients_are_clipped(trainer: Trainer) -> None:
    trainer.optimizers = [Recorder(trainer.task.model)]  # type: ignore[list-item]
    alone = [step(trainer, [[i]]) for i in (0, 19)]
    sizes = [trainer.task.weight(np.array([i])) for i in (0, 19)]
    assert sizes[0] != sizes[1]
    mean = sum(loss * size for loss, size in zip(alone, sizes, strict=True)) / sum(sizes)
    assert step(trainer, [[0, 19]]) == pytest.approx(mean, rel=1e-5)
    recorder = Recorder(trainer.task.model)
    trainer.optimizers = [recorder]  # type: ignore[list-item]
    trainer.recipe = replace(trainer.recipe, clip_norm=0.01)
    step(trainer, [[0, 1, 2]])
    assert torch.cat([g.flatten() for g in recorder.gradients]).norm().item() == pytest.approx(0.01, rel=1e-3)
    trainer.optimizers = [Recorder(trainer.task.model)]  # type: ignore[list-item]
    for module in trainer.task.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    losses = [step(trainer, [[0, 1, 2]]) for trainer.position.step in (0, 1, 0)]
    assert losses[0] == losses[2] != losses[1]


def test_pairs_that_are_too_long_are_left_out_and_counted(
    tmp_path: Path, recipe: TranslationRecipe, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(["three"] * 40)
    train = write_pairs(tmp_path / "long.tsv", [*PAIRS, (long, "one"), ("one", long)])
    valid = write_pairs(tmp_path / "long_valid.tsv", [*PAIRS[:4], (long, "one"), ("one", long)])
    recipe = replace(recipe, train=(train,), valid=(valid,), max_length=10, epochs=1, average=1)
    result = train_translation(recipe, TRAINED, tmp_path / "run")
    notes = [r for r in records(tmp_path / "run") if r["kind"] == "note"]
    assert notes == [
        {"kind": "note", "step": 0, "pairs_left_out": 2, "longer_than_tokens": 10},
        {"kind": "note", "step": 0, "valid_pairs_left_out": 2, "longer_than_tokens": TRAINED.max_positions},
    ]
    limits = 10, TRAINED.max_positions
    said = [
        f"{name} left out: 2, longer than {limit} tokens" for name, limit in zip(("pairs", "valid pairs"), limits, strict=True)
    ]
    assert [line for line in capsys.readouterr().err.splitlines() if "left out" in line] == said
    assert list(load_checkpoint(result).samples) == PAIRS[:4]
    other = write_pairs(tmp_path / "other_valid.tsv", [*PAIRS[:4], (long, "one")])
    train_translation(replace(recipe, valid=(other,)), TRAINED, tmp_path / "run", resume=True)
    found = [r for r in records(tmp_path / "run") if r["kind"] == "note"]
    assert found == [{**notes[1], "valid_pairs_left_out": 1}, notes[0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_length": 2}, "max_length: no training pair has at most 2 tokens; raise it"),
        ({"batch_tokens": 2}, "batch_tokens: no training pair has at most 2 tokens"),
        ({"valid": ("long.tsv",)}, "max_positions: no validation pair has at most 16 tokens"),
        ({"devices": "several"}, "devices: 'several' cannot be used"),
        ({"devices": "0"}, "devices: '0' cannot be used"),
    ],
)
def test_an_unusable_recipe_is_rejected(
    tmp_path: Path, recipe: TranslationRecipe, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "long.tsv", [("one", " ".join(["three"] * 40))])
    with pytest.raises(RecipeError, match=message):
        train_translation(replace(recipe, **changes), TRAINED, tmp_path / "run")


def test_bad_data_and_diverging_losses_end_the_training(
    tmp_path: Path, recipe: TranslationRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = write_pairs(tmp_path / "bad.tsv", [("one", "")])
    with pytest.raises(CorpusError, match=r"bad\.tsv:1: the target side is empty"):
        train_translation(replace(recipe, train=(bad,)), TRAINED, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(Trainer, "_step", lambda trainer, data: float("nan"))
    with pytest.raises(DivergedError, match=r"step 1: the loss or the norm of the gradient is nan; lower learning"):
        train_translation(recipe, TRAINED, tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(DivergedError, match=r"step 1: the validation loss is nan; lower learning"):
        train_translation(replace(recipe, learning_rate=1e38, max_steps=1, warmup_steps=0), TRAINED, tmp_path / "run")
    assert not (tmp_path / "run/state.pt").exists()
