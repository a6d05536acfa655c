"""The gate that every precision passes before it becomes part of a bundle."""

import re
from typing import Any

import pytest

from triptych_export.bundle_files import EXTRAS, PRECISIONS, SHORT_PRECISION
from triptych_export.errors import ParityError
from triptych_export.parity.gate import FLOORS, check_gate

PARITY: dict[str, Any] = {
    "fp32": {"samples": 40, "distinct_outputs": 40},
    "int8": {"decisions": 40, "near_agreement_percent": 99.0, "mean_cosine": 0.99, "mean_worst_channel_error_percent": 20.0},
    "fp16": {"decisions": 400, "forced_token_agreement_percent": 99.9},
}
METRICS = {"bleu_fp32": 30.0, "bleu_int8": 29.5}


def gate(
    fp32: dict[str, Any] | None = None, int8: dict[str, Any] | None = None, fp16: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    changes = {"fp32": fp32, "int8": int8, "fp16": fp16}
    parity = {name: {**figures, **(changes[name] or {})} for name, figures in PARITY.items()}
    given = {"metrics": METRICS, "shipped": ("int8", "fp32", "fp16"), "allowed": False} | options
    return check_gate(parity, given["metrics"], given["shipped"], given["allowed"])


def test_good_figures_pass_unchanged() -> None:
    assert gate() == PARITY


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"int8": {"near_agreement_percent": 80.5}}, "int8: near agreement percent: 80.5, at least 90 required"),
        ({"int8": {"mean_cosine": 0.95}}, "int8: mean cosine: 0.95, at least 0.97 required"),
        ({"int8": {"mean_cosine": float("nan")}}, "int8: mean cosine: nan, at least 0.97 required"),
        ({"int8": {"cls_worst_channel_error_percent": 130.0}}, "cls worst channel error percent: 130.0, at most 75 allowed"),
        ({"int8": {"decisions": 0}}, "int8: decisions: 0, at least 32 required"),
        ({"int8": {"samples_not_finite": 2}}, "int8: 2 samples have values that are not finite"),
        ({"metrics": {**METRICS, "bleu_int8": 20.25}}, "int8: BLEU points below fp32: 9.75, at most 2 allowed"),
        (
            {"fp16": {"forced_token_agreement_percent": 94.9}},
            "fp16: forced token agreement percent: 94.9, at least 95 required",
        ),
        ({"fp32": {"samples": 3}}, "fp32: samples: 3, at least 32 required"),
        ({"fp32": {"distinct_outputs": 1}}, "int8: different outputs: 1, at least 16 required"),
    ],
)
def test_a_figure_below_its_floor_is_a_fault_unless_allowed_and_recorded(figures: dict[str, Any], message: str) -> None:
    with pytest.raises(ParityError, match=f"{re.escape(message)}.*--allow-inexact"):
        gate(**figures)
    assert message.partition(": ")[2] in str(gate(**figures, allowed=True))


def test_what_is_not_shipped_may_be_anything() -> None:
    assert "shipped_despite" not in str(gate(int8={"near_agreement_percent": 0.0}, shipped=("fp32",)))


def test_every_precision_has_a_floor() -> None:
    assert {*PRECISIONS, *EXTRAS, SHORT_PRECISION} - {"fp32"} == FLOORS.keys()
