"""Recipes reject values out of range and name option, value and limit."""

from typing import Any

import pytest

from triptych_training.errors import RecipeError
from triptych_training.loop.recipe import HEADS, FinetuningRecipe, ImageRecipe, PretrainingRecipe, Recipe, TranslationRecipe

GOOD: dict[str, Any] = {"train": ("a",), "valid": ("b",), "source_language": "en", "target_language": "de"}
FILES = {"train": ("a",), "valid": ("b",)}
TRANSLATION: tuple[type[Recipe], dict[str, Any]] = TranslationRecipe, GOOD
PRETRAINING: tuple[type[Recipe], dict[str, Any]] = PretrainingRecipe, {**FILES}
FINETUNING: tuple[type[Recipe], dict[str, Any]] = FinetuningRecipe, {**FILES, "head": "text-classification", "encoder": "c"}
IMAGES: tuple[type[Recipe], dict[str, Any]] = ImageRecipe, {"train": ("a",)}


def test_the_defaults_are_valid() -> None:
    assert TranslationRecipe(**GOOD).optimizer == "adam"
    assert [kind(**good).epochs for kind, good in (PRETRAINING, FINETUNING, IMAGES)] == [20, 3, 100]
    assert TranslationRecipe(**GOOD, keep=1, ema_decay=0.9).averaged == 1


BELOW = {
    **dict.fromkeys(("epochs", "batch_tokens", "accumulate", "average", "save_steps", "max_length", "validate_every"), 0),
    **dict.fromkeys(("max_steps", "max_minutes", "keep", "warmup_steps", "clip_norm", "seed"), -1),
    **dict.fromkeys(("weight_decay", "pause_minutes"), float("nan")),
}


@pytest.mark.parametrize(("name", "value"), BELOW.items())
def test_a_number_below_its_limit_is_named(name: str, value: float) -> None:
    with pytest.raises(RecipeError) as caught:
        TranslationRecipe(**{**GOOD, name: value})
    assert str(caught.value) == f"{name}: {value} is below {1 if value == 0 else 0}"


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (TRANSLATION, {"ema_decay": 1.0}, "ema_decay: 1.0 is outside [0, 1)"),
        (TRANSLATION, {"keep": 1}, "keep: 1 is below average 5"),
        (TRANSLATION, {"max_minutes": 1.0}, "max_minutes: the schedule inverse-sqrt has no end; choose one of linear, cosine"),
        (TRANSLATION, {"vocabulary_size": 259}, "vocabulary_size: 259 is below 260"),
        (TRANSLATION, {"learning_rate": 0.0}, "learning_rate: 0.0 is not above 0"),
        (TRANSLATION, {"learning_rate": float("nan")}, "learning_rate: nan is not above 0"),
        (TRANSLATION, {"label_smoothing": 1.0}, "label_smoothing: 1.0 is outside [0, 1)"),
        (TRANSLATION, {"seed": 2**32}, "seed: 4294967296 is above 4294967295"),
        (TRANSLATION, {"optimizer": "lion"}, "optimizer: 'lion' is unknown; choose one of adam, muon, sgd"),
        (TRANSLATION, {"schedule": "step"}, "schedule: 'step' is unknown; choose one of inverse-sqrt, linear, cosine"),
        (TRANSLATION, {"precision": "fp8"}, "precision: 'fp8' is unknown; choose one of auto, fp32, bf16, fp16"),
        (TRANSLATION, {"valid": ()}, "train and valid: both need at least one file"),
        (PRETRAINING, {"sequence_length": 7}, "sequence_length: 7 is below 8"),
        (PRETRAINING, {"batch_tokens": 127}, "batch_tokens: 127 is below 128"),
        (PRETRAINING, {"vocabulary_size": 99}, "vocabulary_size: 99 is below 100"),
        (PRETRAINING, {"mask_share": -0.1}, "mask_share: -0.1 is outside [0, 1)"),
        (FINETUNING, {"head": "summary"}, f"head: 'summary' is unknown; choose one of {', '.join(HEADS)}"),
        (FINETUNING, {"max_length": -1}, "max_length: -1 is below 0"),
        (FINETUNING, {"stride": -1}, "stride: -1 is below 0"),
        (FINETUNING, {"dropout": 1.0}, "dropout: 1.0 is outside [0, 1)"),
        (IMAGES, {"hold_out": -1}, "hold_out: -1 is below 0"),
        (IMAGES, {"hold_out": 0}, "valid: name folders, or set hold_out to take images from the training folders"),
        (IMAGES, {"batch_images": 0}, "batch_images: 0 is below 1"),
        (IMAGES, {"randaugment_operations": -1}, "randaugment_operations: -1 is below 0"),
        (IMAGES, {"randaugment_magnitude": 1.1}, "randaugment_magnitude: 1.1 is outside [0, 1]"),
        (IMAGES, {"translate": -0.1}, "translate: -0.1 is outside [0, 1]"),
        (IMAGES, {"mixup": float("nan")}, "mixup: nan is below 0"),
        (IMAGES, {"cutmix": -1.0}, "cutmix: -1.0 is below 0"),
        (IMAGES, {"cache_gib": -1.0}, "cache_gib: -1.0 is below 0"),
        (IMAGES, {"train": ()}, "train: needs at least one folder"),
    ],
)
def test_every_recipe_rejects_values_out_of_range(
    recipe: tuple[type[Recipe], dict[str, Any]], changes: dict[str, Any], message: str
) -> None:
    kind, good = recipe
    with pytest.raises(RecipeError) as caught:
        kind(**{**good, **changes})
    assert str(caught.value).startswith(message)
