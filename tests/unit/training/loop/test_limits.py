"""Time limits, pauses, rare validations, initial weights, precision."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.loop import clock as clock_module
from triptych_training.loop import recipe as recipe_module
from triptych_training.loop import trainer as trainer_module
from triptych_training.loop.fabric import LossScale, compile_layers
from triptych_training.loop.trainer import Trainer
from triptych_training.tasks.translation import train_translation

from ..runs import assert_resumed, assert_same, kill, records
from ..toy import TRAINED, Finished, make_recipe

STEPS = 12  # of `make_recipe`


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log metrics after every step."""
    monkeypatch.setattr(trainer_module, "METRIC_STEPS", 1)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch, every_step: None) -> None:
    """Make every reading of the clock take a second."""
    seconds = count(1)
    monkeypatch.setattr(recipe_module, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))


def saved(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def rates(run: Path) -> list[float]:
    return [line["learning_rate"] for line in records(run) if line["kind"] == "train"]


@pytest.mark.usefixtures("ticking")
def test_a_training_ends_at_its_time_limit_with_a_rate_near_zero_and_is_not_extended(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, epochs=1000, max_minutes=1.2, schedule="cosine", warmup_steps=4, average=1)
    result = train_translation(recipe, TRAINED, tmp_path / "run")
    steps = load_checkpoint(result).provenance["steps"]
    assert 13 < steps < 70
    found = rates(tmp_path / "run")
    assert len(found) == steps
    assert max(found) > 0.5 * recipe.learning_rate
    assert found[-1] < 0.1 * recipe.learning_rate
    assert found.index(max(found)) < steps // 3
    assert [line["kind"] for line in records(tmp_path / "run")[-2:]] == ["epoch", "final"]
    before = (result / "model.safetensors").read_bytes()
    train_translation(recipe, TRAINED, tmp_path / "run", resume=True)  # only writes the result again
    assert (result / "model.safetensors").read_bytes() == before
    assert len(rates(tmp_path / "run")) == steps


def test_a_time_limit_right_after_an_epoch_without_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(1)
    monkeypatch.setattr(clock_module.Clock, "update", lambda clock, step: setattr(clock, "gone", float(next(calls) > 7)))
    recipe = make_recipe(tmp_path, max_minutes=1, validate_every=2, schedule="linear", average=1)
    train_translation(recipe, TRAINED, tmp_path / "run")
    assert [(r["kind"], r["step"]) for r in records(tmp_path / "run")[-2:]] == [("epoch", 6), ("final", 6)]


def test_a_time_limit_before_the_first_step_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make_recipe(tmp_path, epochs=1, max_minutes=0.5, schedule="linear")
    with monkeypatch.context() as patch:
        patch.setattr(clock_module.Clock, "update", lambda clock, step: setattr(clock, "gone", 1.0))
        with pytest.raises(RecipeError, match=r"data took longer than 0\.5, so that no step was taken"):
            train_translation(recipe, TRAINED, tmp_path / "run")
    assert train_translation(replace(recipe, max_minutes=60), TRAINED, tmp_path / "run", resume=True).name == "model"


@pytest.mark.usefixtures("every_step")
def test_a_training_may_end_before_its_time_limit(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, epochs=1, max_minutes=60, schedule="linear", average=1)
    result = train_translation(recipe, TRAINED, tmp_path / "run")
    assert load_checkpoint(result).provenance["steps"] == STEPS // 2
    assert rates(tmp_path / "run")[-1] < 0.1 * recipe.learning_rate


@pytest.mark.parametrize("steps", [4, 6])
def test_a_training_with_pauses_ends_with_the_weights_of_an_uninterrupted_one(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    recipe, whole = finished
    runs = 1
    monkeypatch.setattr(clock_module.Clock, "update", lambda clock, step: setattr(clock, "pauses", step >= steps))
    while (result := train_translation(recipe, TRAINED, tmp_path / "run", resume=True)).name == "state.pt":
        runs += 1
        assert result == tmp_path / "run/state.pt"
    assert runs == {4: 3, 6: 1}[steps]
    assert_same(tmp_path / "run", whole)


@pytest.mark.usefixtures("ticking")
def test_the_time_limit_counts_all_runs(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, epochs=1000, max_minutes=2, pause_minutes=0.7, schedule="linear", average=1, warmup_steps=0)
    runs = 1
    while train_translation(recipe, TRAINED, tmp_path / "run", resume=True).name == "state.pt":
        runs += 1
    assert 3 <= runs <= 8
    found = rates(tmp_path / "run")
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.1 * recipe.learning_rate


def test_validations_may_be_rarer_than_epochs_and_old_checkpoints_removed(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, epochs=3, validate_every=2, average=2, batch_tokens=36)
    train_translation(recipe, TRAINED, tmp_path / "whole")
    assert saved(tmp_path / "whole") == ["epoch-0002", "epoch-0003"]
    assert [line["epoch"] for line in records(tmp_path / "whole") if line["kind"] == "epoch"] == [2, 3]
    weights = [load_checkpoint(tmp_path / f"whole/checkpoints/epoch-000{n}").model.projection.weight for n in (2, 3)]
    assert torch.allclose(load_checkpoint(tmp_path / "whole/model").model.projection.weight, sum(weights) / 2)
    train = partial(train_translation, recipe, TRAINED)
    assert_resumed(train, tmp_path / "run", tmp_path / "whole", "_step", 9)  # killed before the first validation
    train_translation(replace(recipe, epochs=4, keep=2), TRAINED, tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == ["epoch-0003", "epoch-0004"]


def test_a_training_that_is_resumed_to_end_at_once_has_a_checkpoint(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, epochs=9, validate_every=9, save_steps=1, batch_tokens=36)
    kill(lambda: train_translation(recipe, TRAINED, tmp_path / "run"), "_step", 9)  # before the first validation
    load_checkpoint(train_translation(replace(recipe, epochs=1), TRAINED, tmp_path / "run", resume=True))
    assert saved(tmp_path / "run") == ["epoch-0001"]


@pytest.mark.parametrize("ema_decay", [0.0, 0.5])
def test_a_training_can_start_from_the_weights_of_another(finished: Finished, tmp_path: Path, ema_decay: float) -> None:
    first = finished[1] / "model"
    recipe = make_recipe(
        tmp_path, initial=str(first), vocabulary_size=999, learning_rate=1e-12, max_steps=1, ema_decay=ema_decay
    )
    second = train_translation(recipe, TRAINED, tmp_path / "second")
    assert (second / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    before, after = load_checkpoint(first).model, load_checkpoint(second).model
    for (name, expected), (_, tensor) in zip(before.state_dict().items(), after.state_dict().items(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6, msg=name)
    with pytest.raises(CheckpointError, match="has shape"):
        train_translation(recipe, replace(TRAINED, model_dim=24), tmp_path / "third")


def test_half_precision_reaches_a_similar_loss(tmp_path: Path) -> None:
    losses = {}
    for name in ("fp32", "bf16"):
        recipe = make_recipe(tmp_path, precision=name, optimizer="muon", epochs=1, average=1, batch_tokens=36)
        train_translation(recipe, TRAINED, tmp_path / name)
        losses[name] = records(tmp_path / name)[-1]["valid_loss"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], abs=0.15)


def test_a_step_that_overflows_in_float16_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[int] = []
    original = Trainer._update
    monkeypatch.setattr(
        Trainer, "_update", lambda trainer, units: (updates.append(trainer.position.step), original(trainer, units))[1]
    )
    monkeypatch.setattr(trainer_module, "LossScale", lambda: LossScale(2.0**20))
    recipe = make_recipe(tmp_path, precision="fp16", epochs=1, average=1)
    train_translation(recipe, TRAINED, tmp_path / "run")
    state = torch.load(tmp_path / "run/state.pt", weights_only=True)
    skipped = STEPS // 2 - len(updates)
    assert skipped > 0
    assert state["loss_scale"]["factor"] == 2.0 ** (20 - skipped)
    assert updates[-1] == STEPS // 2 - 1


@pytest.mark.full
def test_compiled_layers_can_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "compile_layers", lambda model: compile_layers(model, "aot_eager"))
    shape = replace(TRAINED, dropout=0.0)
    losses = []
    for name, chosen in (("plain", False), ("compiled", True)):
        train_translation(make_recipe(tmp_path, compile=chosen), shape, tmp_path / name)
        losses.append(records(tmp_path / name)[-1]["valid_loss"])
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    torch.compiler.reset()
