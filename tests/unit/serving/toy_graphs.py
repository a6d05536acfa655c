"""Tables in place of graphs: an encoder that returns its source, and a search graph by the rules of transformers.

The tokens so far are read from the row's cache, so that a wrong cache gives other logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import DecoderShape, Limits, TranslationManifest
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.slots import SearchSlots
from triptych_serving.runtime.session import Array

Floats = NDArray[np.float64]
VOCABULARY = 24
END = 2
LIMIT = 24  # positions of both sides
SHAPE = DecoderShape(layers=1, heads=1, head_dim=2)


@lru_cache(maxsize=100_000)
def table(source: tuple[int, ...], history: tuple[int, ...]) -> Floats:
    """Return logits; the end gets likelier with the length."""
    logits = np.random.default_rng((*source, len(source), *history)).normal(size=VOCABULARY) * 2
    logits[END] += 0.25 * len(history)
    return logits.astype(np.float32).astype(np.float64)


class TableEncoder:
    """Graph `source, lengths -> memory [2, B, 1, S, 2]`."""

    takes_sequences = False

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        source = inputs["source"].astype(np.float32)
        return [np.broadcast_to(source[None, :, None, :, None], (2, source.shape[0], 1, source.shape[1], 2))]


class TableStep:
    """A search graph for SearchSlots."""

    def __init__(self) -> None:
        self.edits = 0  # of the last run, for each row

    outputs = ()

    def dtype(self, name: str) -> type[np.float32]:
        return np.float32

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> "TableRun":
        return TableRun(self, inputs, outputs)


class TableRun:
    """A step over bound arrays."""

    def __init__(self, step: TableStep, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._step, self._inputs, self._outputs = step, inputs, outputs

    def run(self) -> None:
        inputs, outputs = self._inputs, self._outputs
        self._step.edits = inputs["edit_tokens"].shape[1]
        for row, position in enumerate(inputs["positions"].tolist()):
            cache = inputs["cache_key_0"][row, 0, :, 0]
            cache[position] = inputs["tokens"][row]
            source = inputs["memory_key_0"][row, 0, : inputs["last"][row] + 1, 0]
            logits = table(_ids(source), _ids(cache[1 : position + 1]))
            scores = _edit(logits, *(inputs[f"edit_{name}"][row] for name in ("tokens", "factors", "offsets")))
            best = np.argsort(-scores, kind="stable")[: outputs["top_tokens"].shape[1]]
            outputs["top_tokens"][row], outputs["top_log_probabilities"][row] = best, scores[best]
            outputs["log_probabilities"][row] = scores
            outputs["forced_log_probabilities"][row] = scores[inputs["forced"][row]]
            outputs["attention"][row] = np.arange(outputs["attention"].shape[1]) == sum(_ids(cache[: position + 1])) % len(
                source
            )


def make_slots(manifest: TranslationManifest, step: TableStep, count: int) -> SearchSlots:
    """Make slots over the tables; `manifest` has the special tokens and the generation defaults."""
    manifest = replace(manifest, decoder=SHAPE, limits=Limits(LIMIT, LIMIT))
    caches = HostKVCache(TableEncoder(), step, manifest, count)  # type: ignore[arg-type]
    return SearchSlots(caches, manifest, VOCABULARY)


def _edit(logits: Floats, tokens: NDArray[Any], factors: NDArray[Any], offsets: NDArray[Any]) -> Floats:
    """Apply edits to log-probabilities, or to logits where the factor is negative, without normalising after it."""
    total = np.log(np.exp(logits - logits.max()).sum()) + logits.max()
    scores = logits - total
    for token, factor, offset in set(zip(tokens.tolist(), factors.tolist(), offsets.tolist(), strict=True)):
        value = logits[token] if factor < 0 else logits[token] - total
        edited = (value / abs(factor) if value > 0 else value * abs(factor)) + offset
        scores[token] = edited - total if factor < 0 else edited
    return scores


def _ids(values: NDArray[Any]) -> tuple[int, ...]:
    return tuple(map(int, values.tolist()))
