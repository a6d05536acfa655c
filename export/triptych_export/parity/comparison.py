"""Comparison of PyTorch's and the bundle's outputs: differences of every channel, and the best choices.

`Outputs` maps the graph's output names to arrays, for one text or image. The arrays of `CHOICES` are scores from which the best
is chosen along the last axis; each such vector is a *decision*. A model that only makes vectors decides by `neighbours`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych_export.errors import ParityError
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TextGenerationManifest, TranslationManifest
from triptych_serving.runtime.cpu_info import usable_cpus

Floats = NDArray[np.floating[Any]]
Outputs = Mapping[str, Floats]

BATCHES = (1, 3, 16)
ROUNDS = 8  # samples of a generative model for each row of the smaller batches, where a sample takes most time
QUANTIZED_BATCH = 16  # batch size for other precisions; int8 has one activation scale per batch
TOP = 5
# Of logits and log-probabilities, relative to them if above 1, and of a vector's channels, relative to the channel.
TOLERANCE = 1e-3
PROBABILITY_TOLERANCE = 1e-4
NEAR = 0.9  # share of the best score from which rounding may swap two choices
TIE = 1e-3  # closer logits count as equal, since another order of summation may swap them
CACHE_BYTES = 768 << 20  # of the caches of all rows that a worker decodes together
MOST_WORKERS = 4  # of a check: more would need more memory
NEIGHBOURS = "neighbours"
PROBABILITIES = ("probabilities", "next_sentence", NEIGHBOURS)
LOGITS = ("log_probabilities", "start", "end")
CHOICES = (*PROBABILITIES, *LOGITS)
POOLED = ("mean", "cls")


def check_answers(expected: Sequence[Outputs], run: Callable[[int], Sequence[Outputs]]) -> dict[str, Any]:
    """Compare PyTorch's outputs, each computed alone, with those that `run` computes in batches of 1, 3 and 16.

    Returns the report for the manifest.

    Raises:
        ParityError: a difference exceeds the tolerance, or the best choices differ; shows the first difference.
    """
    largest: dict[str, float] = {}
    sizes = {name: _channel_sizes(np.abs([each[name] for each in expected]).max(0)) for name in POOLED if name in expected[0]}
    for size in BATCHES:
        for index, (want, got) in enumerate(zip(expected, run(size), strict=True)):
            for name, values in want.items():
                place = f"sample {index}, {name}, {size} at once"
                difference = _check_values(place, name, values, got[name], sizes.get(name))
                largest[name] = max(largest.get(name, 0.0), difference)
    choices = sum(len(decisions(answer)) for answer in expected)
    return {
        "samples": len(expected),
        "distinct_outputs": len({b"".join(values.tobytes() for values in answer.values()) for answer in expected}),
        "decisions": choices,
        "batches": list(BATCHES),
        "largest_difference": {name: float(f"{value:.3g}") for name, value in largest.items()},
        **({"best_choices_equal": True} if choices else {}),
    }


def compare_answers(expected: Sequence[Outputs], answers: Sequence[Outputs], median: bool = False) -> dict[str, float]:
    """Measure a precision: percent of equal and of nearly as good choices, cosines, and errors of single channels.

    For a model with one label: percent of the pairs of samples that have the same order.

    A channel's error is the root mean square of its differences, relative to its standard deviation over the samples, or to the
    median channel's if that is larger. So a channel of large numbers cannot hide wrong ones. The report has the worst channel's
    or, with `median`, that of the median channel: some channels of a language model's states hardly depend on the text.
    """
    both = list(zip(expected, answers, strict=True))
    pairs = [pair for want, got in both for pair in zip(decisions(want), decisions(got), strict=True)]
    report: dict[str, float] = {"decisions": len(pairs)}
    if bad := sum(not all(np.isfinite(values).all() for values in answer.values()) for answer in answers):
        report["samples_not_finite"] = bad
    if pairs:
        if "logits" in expected[0] and expected[0]["logits"].size == 1:  # the best of one label says nothing
            report["order_agreement_percent"] = _percent(_order(expected) == _order(answers))
        else:
            kind = "nearest_neighbour" if NEIGHBOURS in expected[0] else "top_1"
            report[f"{kind}_agreement_percent"] = _percent([want.argmax() == got.argmax() for want, got in pairs])
            report["near_agreement_percent"] = _percent([want[got.argmax()] >= NEAR * want.max() for want, got in pairs])
        if NEIGHBOURS not in expected[0]:
            changes = [abs(float(want.max() - got[want.argmax()])) for want, got in pairs]
            report["mean_probability_difference"] = float(f"{np.mean(changes):.3g}")
    for name in POOLED:
        if name in expected[0]:
            want, got = (np.array([answer[name] for answer in side], np.float64) for side in (expected, answers))
            report[f"{name}_cosine"] = round(float(np.mean((_unit(want) * _unit(got)).sum(-1))), 5)
            errors = np.sqrt(((got - want) ** 2).mean(0)) / _channel_sizes(want.std(0))
            which, error = ("median", np.median(errors)) if median else ("worst", errors.max())
            report[f"{name}_{which}_channel_error_percent"] = round(100 * float(error), 2)
    return report


def with_neighbours(answers: Sequence[Outputs], pooling: str) -> list[Outputs]:
    """Add to each answer the cosines of its vector with those of all others, relative to their mean, as `neighbours`."""
    vectors = _unit(np.array([answer[pooling] for answer in answers]))
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, 0)
    cosines -= cosines.sum(1, keepdims=True) / max(1, len(answers) - 1)
    np.fill_diagonal(cosines, -1)
    return [{**answer, NEIGHBOURS: row} for answer, row in zip(answers, cosines, strict=True)]


def decisions(answer: Outputs) -> list[Floats]:
    """List the probability vectors from which a best choice is taken."""
    return [
        vector if name in PROBABILITIES else softmax(vector)
        for name in CHOICES
        if name in answer
        for vector in answer[name].reshape(-1, answer[name].shape[-1])
    ]


def _check_values(place: str, name: str, want: Floats, got: Floats, sizes: Floats | None) -> float:
    """Check one output array, with the channels' sizes if it is a vector; return its largest difference."""
    if want.shape != got.shape:
        raise ParityError(f"{place}: PyTorch gives shape {list(want.shape)}, the bundle {list(got.shape)}")
    if not want.size:
        return 0.0
    differences = np.abs(want - got)
    limits = np.full(want.shape, PROBABILITY_TOLERANCE)
    if name not in PROBABILITIES:
        limits = TOLERANCE * (np.maximum(1.0, np.abs(want)) if sizes is None else sizes)
    if (wrong := ~(differences <= limits)).any():  # "~" finds NaN too
        at = tuple(np.argwhere(wrong)[0])
        raise ParityError(
            f"{place}, value {', '.join(map(str, at))}: differs from PyTorch by {differences[at]:.3g}, "
            f"the limit is {limits[at]:.3g}"
        )
    if name in CHOICES:
        _check_order(place, *(values.reshape(-1, want.shape[-1]) for values in (want, got, limits)))
    return float(differences.max())


def _check_order(place: str, want: Floats, got: Floats, limits: Floats) -> None:
    """Check that the five best choices have the same order, except where PyTorch scores two of them alike."""
    for index, (theirs, ours, limit) in enumerate(zip(want, got, limits, strict=True)):
        for best, other in zip(_best(theirs), _best(ours), strict=True):
            if best != other and abs(float(theirs[best] - theirs[other])) > limit[best]:
                raise ParityError(f"{place}, decision {index}: PyTorch ranks {best} where the bundle has {other}")


def _best(scores: Floats) -> list[int]:
    best: list[int] = np.argsort(-scores, kind="stable")[:TOP].tolist()
    return best


def softmax(logits: Floats) -> Floats:
    """Compute probabilities along the last axis."""
    powers: Floats = np.exp(logits - logits.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def _unit(vectors: Floats) -> Floats:
    units: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return units


def _channel_sizes(sizes: Floats) -> Floats:
    """Raise the sizes of small channels to the median, since rounding errors do not shrink with a channel."""
    return np.maximum(sizes, max(float(np.median(sizes)), 1e-12))


def _order(answers: Sequence[Outputs]) -> Floats:
    """Compare the logits of all pairs of samples: -1, 0 or 1."""
    logits = np.array([answer["logits"][0] for answer in answers])
    first, second = np.triu_indices(len(logits), 1)
    signs: Floats = np.sign(logits[first] - logits[second])
    return signs


def _percent(values: Sequence[bool] | NDArray[np.bool_]) -> float:
    return round(100 * float(np.mean(values)), 2)


def affordable(bundle: Bundle, rows: int, context: int = 0) -> int:
    """Limit the rows that a generative model decodes together by the memory of their caches, to at least three.

    A decoder-only model is opened with a context of this many tokens.
    """
    manifest = bundle.manifest
    assert isinstance(manifest, TranslationManifest | TextGenerationManifest)
    shape = manifest.decoder
    if isinstance(manifest, TextGenerationManifest):
        positions = context
    else:
        positions = manifest.limits.max_source_tokens + manifest.limits.max_target_tokens
    return min(rows, max(3, CACHE_BYTES // (8 * shape.layers * shape.heads * shape.head_dim * positions)))


def workers_for(rows: int, slots: int) -> int:
    """Number of workers, with `slots` each, that decode these rows in a check."""
    return min(usable_cpus(), MOST_WORKERS, max(1, rows // slots))


def batches_of(bundle: Bundle, count: int, context: int = 0) -> dict[int, list[int]]:
    """Choose, for each batch size, which of `count` samples a generative model decodes: all for the largest, else some."""
    sizes = sorted({affordable(bundle, rows, context) for rows in BATCHES})
    return {rows: spread(range(count), count if rows == sizes[-1] else ROUNDS * rows) for rows in sizes}


def tokens_per_second(decode: Callable[[], Sequence[Sequence[int]]]) -> float:
    """Measure how fast `decode` makes its texts."""
    start = time.perf_counter()
    outputs = decode()
    return round(sum(map(len, outputs)) / (time.perf_counter() - start), 1)


Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` evenly spaced items, or all items if there are fewer."""
    return [items[i * len(items) // count] for i in range(count)] if len(items) > count else list(items)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split items into consecutive chunks of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
