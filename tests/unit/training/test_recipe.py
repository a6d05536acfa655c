"""A recipe refuses what cannot be meant."""

from typing import Any

import pytest

from triptych_training.errors import RecipeError
from triptych_training.recipe import TranslationRecipe

GOOD: dict[str, Any] = {"train": ("a",), "valid": ("b",), "source_language": "en", "target_language": "de"}


def test_the_defaults_are_a_recipe() -> None:
    assert TranslationRecipe(**GOOD).optimizer == "adam"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs: 0 is below 1"),
        ({"batch_tokens": 0}, "batch_tokens: 0 is below 1"),
        ({"accumulate": 0}, "accumulate: 0 is below 1"),
        ({"average": 0}, "average: 0 is below 1"),
        ({"save_steps": 0}, "save_steps: 0 is below 1"),
        ({"max_length": 0}, "max_length: 0 is below 1"),
        ({"warmup_steps": -1}, "warmup_steps: -1 is below 0"),
        ({"weight_decay": -0.1}, "weight_decay: -0.1 is below 0"),
        ({"weight_decay": float("nan")}, "weight_decay: nan is below 0"),
        ({"clip_norm": -1.0}, "clip_norm: -1.0 is below 0"),
        ({"seed": -1}, "seed: -1 is below 0"),
        ({"vocabulary_size": 259}, "vocabulary_size: 259 is below 260"),
        ({"learning_rate": 0.0}, "learning_rate: 0.0 is not above 0"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not above 0"),
        ({"label_smoothing": 1.0}, "label_smoothing: 1.0 is outside [0, 1)"),
        ({"optimizer": "sgd"}, "optimizer: 'sgd' is unknown; choose one of adam, muon"),
        ({"schedule": "step"}, "schedule: 'step' is unknown; choose one of inverse-sqrt, linear, cosine"),
        ({"precision": "fp16"}, "precision: 'fp16' is unknown; choose one of auto, fp32, bf16"),
        ({"valid": ()}, "train and valid: both need at least one file"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_value_out_of_range_is_named_with_its_limit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        TranslationRecipe(**{**GOOD, **changes})
    assert str(caught.value) == message
