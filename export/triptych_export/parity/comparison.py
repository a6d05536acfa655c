"""Comparison of PyTorch's and the bundle's outputs: largest differences, and the order of the best choices.

`Outputs` maps the graph's output names to arrays, for one text or image. The arrays of `CHOICES` are scores from which the best
is chosen along the last axis; each such vector is a *decision*.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych_export.bundle_files import HALF_PRECISION
from triptych_export.errors import ParityError

Floats = NDArray[np.floating[Any]]
Outputs = Mapping[str, Floats]

BATCHES = (1, 3, 16)
QUANTIZED_BATCH = 16  # batch size for other precisions; int8 has one activation scale per batch
TOP = 5
TOLERANCE = 1e-3  # of hidden states and logits, relative to their largest magnitude if that is above 1
PROBABILITY_TOLERANCE = 1e-4
LEAST_AGREEMENT = 95.0  # percent of fp16's decisions; even models with random weights exceed it
LEAST_COSINE = 0.999  # mean over fp16's hidden states
NEAR = 0.9  # share of the best probability from which rounding may swap two choices
PROBABILITIES = ("probabilities", "next_sentence")
LOGITS = ("log_probabilities", "start", "end")
CHOICES = (*PROBABILITIES, *LOGITS)
POOLED = ("mean", "cls")


def report_answers(
    expected: Sequence[Outputs], answer: Callable[[str, int], Sequence[Outputs]], extras: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare all precisions of an encoder with PyTorch: fp32 must be equal, fp16 has minimum agreement, int8 is only reported.

    Args:
        expected: PyTorch's outputs, each computed alone.
        answer: computes the bundle's outputs, given precision and batch size.
        extras: precisions besides fp32 and int8.

    Raises:
        ParityError: fp32 differs, or fp16 agrees too little.
    """
    report: dict[str, Any] = {"fp32": check_answers(expected, lambda size: answer("fp32", size))}
    for name in ("int8", *extras):
        compare = check_half if name == HALF_PRECISION else compare_answers
        report[name] = compare(expected, answer(name, QUANTIZED_BATCH))
    return report


def check_answers(expected: Sequence[Outputs], run: Callable[[int], Sequence[Outputs]]) -> dict[str, Any]:
    """Compare outputs in batches of 1, 3 and 16; returns the report for the manifest.

    Args:
        expected: PyTorch's outputs, each computed alone.
        run: computes the runtime's outputs for the same inputs, given a batch size.

    Raises:
        ParityError: a difference exceeds the tolerance, or the best choices differ; shows the first difference.
    """
    largest: dict[str, float] = {}
    for size in BATCHES:
        for index, (want, got) in enumerate(zip(expected, run(size), strict=True)):
            for name, values in want.items():
                difference = _check_values(f"sample {index}, {name}, {size} at once", name, values, got[name])
                largest[name] = max(largest.get(name, 0.0), difference)
    return {
        "samples": len(expected),
        "decisions": sum(len(decisions(answer)) for answer in expected),
        "batches": list(BATCHES),
        "largest_difference": {name: float(f"{value:.3g}") for name, value in largest.items()},
        "best_choices_equal": True,
    }


def compare_answers(expected: Sequence[Outputs], answers: Sequence[Outputs]) -> dict[str, float]:
    """Measure a quantized variant: percent of equal best choices, mean change of their probability, cosines."""
    both = list(zip(expected, answers, strict=True))
    pairs = [pair for want, got in both for pair in zip(decisions(want), decisions(got), strict=True)]
    same = [want.argmax() == got.argmax() for want, got in pairs]
    changes = [abs(float(want.max() - got[want.argmax()])) for want, got in pairs]
    report: dict[str, float] = {"decisions": len(pairs)}
    if pairs:
        report["top_1_agreement_percent"] = round(100 * float(np.mean(same)), 2)
        report["mean_probability_difference"] = float(f"{np.mean(changes):.3g}")
    for name in POOLED:
        cosines = [_cosine(want[name], got[name]) for want, got in both if name in want]
        if cosines:
            report[f"{name}_cosine"] = round(float(np.mean(cosines)), 5)
    return report


def check_half(expected: Sequence[Outputs], answers: Sequence[Outputs]) -> dict[str, float]:
    """Compare fp16 outputs and check minimum agreement, which leaves ample room for rounding.

    Raises:
        ParityError: a number is not finite, or too few outputs are close to PyTorch's.
    """
    for index, answer in enumerate(answers):
        for name, values in answer.items():
            if not np.isfinite(values).all():
                raise ParityError(f"fp16: sample {index}, {name}: not all values are finite")
    report = compare_answers(expected, answers)
    for name in POOLED:
        cosine = report.get(f"{name}_cosine", 1.0)
        if cosine < LEAST_COSINE:
            raise ParityError(f"fp16: {name}: mean cosine with PyTorch is {cosine}, at least {LEAST_COSINE} is required")
    near = [
        want[got.argmax()] >= NEAR * want.max()
        for both in zip(expected, answers, strict=True)
        for want, got in zip(*map(decisions, both), strict=True)
    ]
    if 100 * sum(near) < LEAST_AGREEMENT * len(near):
        raise ParityError(
            f"fp16: {sum(near)} of {len(near)} best choices agree with PyTorch, at least {LEAST_AGREEMENT:g} % are required"
        )
    return report


def decisions(answer: Outputs) -> list[Floats]:
    """List the probability vectors from which a best choice is taken."""
    return [
        vector if name in PROBABILITIES else _softmax(vector)
        for name in CHOICES
        if name in answer
        for vector in answer[name].reshape(-1, answer[name].shape[-1])
    ]


def _check_values(place: str, name: str, want: Floats, got: Floats) -> float:
    """Check one output array; return its largest difference."""
    if want.shape != got.shape:
        raise ParityError(f"{place}: PyTorch gives shape {list(want.shape)}, the bundle {list(got.shape)}")
    if not want.size:
        return 0.0
    difference = float(np.abs(want - got).max())
    limit = PROBABILITY_TOLERANCE if name in PROBABILITIES else TOLERANCE * max(1.0, float(np.abs(want).max()))
    if not difference <= limit:  # "not" finds NaN too
        raise ParityError(f"{place}: differs from PyTorch by up to {difference:.3g}, the limit is {limit:.3g}")
    if name in CHOICES:
        _check_order(place, want.reshape(-1, want.shape[-1]), got.reshape(-1, got.shape[-1]), limit)
    return difference


def _check_order(place: str, want: Floats, got: Floats, limit: float) -> None:
    """Check that the five best choices have the same order, except where PyTorch scores two of them alike."""
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        for best, other in zip(_best(theirs), _best(ours), strict=True):
            if best != other and abs(float(theirs[best] - theirs[other])) > limit:
                raise ParityError(f"{place}, decision {index}: PyTorch ranks {best} where the bundle has {other}")


def _best(scores: Floats) -> list[int]:
    best: list[int] = np.argsort(-scores, kind="stable")[:TOP].tolist()
    return best


def _softmax(logits: Floats) -> Floats:
    powers: Floats = np.exp(logits - logits.max())
    powers /= powers.sum()
    return powers


def _cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))


Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` evenly spaced items, or all items if there are fewer."""
    return [items[i * len(items) // count] for i in range(count)] if len(items) > count else list(items)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split items into consecutive chunks of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
