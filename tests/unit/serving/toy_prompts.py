"""Tables in place of a decoder-only model's graphs. The tokens so far are read from the row's cache, as in toy_graphs.

What follows a token depends on whether it was read alone or with others: more than in a runtime, where only last bits do.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape, Limits, SpecialTokens
from triptych_serving.bundle.manifest.text_generation import GenerationDefaults
from triptych_serving.decoding.prompt_cache import LEAST, PrefixCache, PromptGraphs, PromptKVCache, PromptReader
from triptych_serving.decoding.prompt_lane_factory import PromptSpec
from triptych_serving.decoding.prompt_lanes import PromptGreedyLane, PromptSearchLane
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Row
from triptych_serving.text.vocabulary import Vocabulary

from .toy_graphs import Floats

TOKENS = 40
ENDS = (2, 3)
CONTEXT = 400
WORDS = Vocabulary([b"", b"", b"", b"", *(f" w{index}".encode() for index in range(4, TOKENS))])
SPEC = PromptSpec(
    SpecialTokens(0, -1, *ENDS[:1], ENDS[1:]), Limits(1, CONTEXT), GenerationDefaults(max_length=20), DecoderShape(1, 1, 2), 8
)


@lru_cache(maxsize=100_000)
def log_probabilities(history: tuple[int, ...], together: int) -> Floats:
    """Return log-probabilities of the token after these, the first `together` of which were not read alone; of the ends they
    grow with the length.
    """
    logits = np.random.default_rng((7, together, len(history), *history)).normal(size=TOKENS) * 2
    logits[list(ENDS)] += 0.05 * len(history) - 3
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def read_together(prompt: Sequence[int], searches: bool) -> int:
    """Return the number of tokens at the beginning of a prompt that are never read alone in the lane."""
    return len(prompt) - searches if len(prompt) > LEAST else 0


def greedy(prompt: list[int], most: int, searches: bool = False) -> list[int]:
    """Return the tokens that greedy search adds in one of the lanes."""
    history = list(prompt)
    while len(history) < len(prompt) + most:
        token = int(log_probabilities(tuple(history), read_together(prompt, searches)).argmax())
        if token in ENDS:
            break
        history.append(token)
    return history[len(prompt) :]


class TablePrompts:
    """A step graph, with `edit_tokens` the search graph, with `targets` the score graph.

    `reads` has the number of tokens of each run over chunks or whole prompts.
    """

    inputs = ("tokens", "positions", "total", "forced", "edit_tokens", "edit_factors", "edit_offsets", "candidates")
    outputs = ("next", "top_log_probabilities", "top_tokens", "forced_log_probabilities", "log_probabilities")

    def __init__(self) -> None:
        self.reads: list[int] = []

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> "TableRun":
        return TableRun(self, inputs, outputs)


class TableRun:
    """A run over bound arrays."""

    def __init__(self, graph: TablePrompts, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._graph, self._inputs, self._outputs = graph, inputs, outputs

    def run(self) -> None:
        inputs, outputs = self._inputs, self._outputs
        tokens = inputs["tokens"].copy()
        rows, count = tokens.shape
        is_whole = inputs["total"] == [count]
        assert count == 1 or rows == 1 or is_whole, "the runtime appends chunks to one row only"
        assert is_whole or inputs["total"] == [CONTEXT]
        if count > 1:
            self._graph.reads.append(tokens.size)
        for row, last in enumerate(inputs["positions"].tolist()):
            keys = inputs["cache_key_0"][row, 0]
            start = 0 if is_whole else last + 1 - count
            keys[start : start + count, 0] = tokens[row]
            keys[start : start + count, 1] = count > 1
            if "targets" in inputs:
                self._score(keys, start, inputs["targets"][row])
                continue
            scores = log_probabilities(*_history(keys[: last + 1]))
            forced = int(inputs["forced"][row])
            if "top_tokens" not in outputs:
                outputs["next"][row] = forced if forced >= 0 else scores.argmax()
                continue
            best = np.argsort(-scores, kind="stable")[: outputs["top_tokens"].shape[1]]
            outputs["top_tokens"][row], outputs["top_log_probabilities"][row] = best, scores[best]
            outputs["log_probabilities"][row] = scores
            outputs["forced_log_probabilities"][row] = scores[forced]

    def _score(self, keys: Array, start: int, targets: Array) -> None:
        outputs = self._outputs
        for index, target in enumerate(targets.tolist()):
            scores = log_probabilities(*_history(keys[: start + index + 1]))
            best = np.argsort(-scores, kind="stable")[: outputs["top_tokens"].shape[1]]
            outputs["target_log_probabilities"][0, index] = scores[target]
            outputs["top_tokens"][index], outputs["top_log_probabilities"][index] = best, scores[best]


def _history(keys: Array) -> tuple[tuple[int, ...], int]:
    """Return the tokens in a row's cache, and how many at its beginning were not read alone."""
    together = int(keys[:, 1].sum())
    assert keys[:together, 1].all(), "tokens that were read alone are not the last ones"
    return tuple(keys[:, 0].astype(int).tolist()), together


def make_lane(
    searches: bool, count: int = 32, prefixes: PrefixCache | None = None, chunks: bool = True
) -> tuple[PromptGreedyLane | PromptSearchLane, TablePrompts]:
    """Make a lane over the tables, and return its graph; without `chunks`, whole prompts are read while no row decodes."""
    graph = TablePrompts()
    graphs = PromptGraphs(graph, graph, lambda: graph)  # type: ignore[arg-type, return-value]
    cache = PromptKVCache(graphs, SPEC.shape, CONTEXT, count)
    lanes: list[PromptGreedyLane | PromptSearchLane] = []
    reader = PromptReader(cache, prefixes or PrefixCache(0), lambda: chunks or bool(lanes[0].updated_rows), TOKENS)
    if searches:
        lanes.append(PromptSearchLane(SearchSlots(cache, SPEC, TOKENS), reader, SPEC.tokens, WORDS))
    else:
        lanes.append(PromptGreedyLane(Slots(cache, SPEC), reader, SPEC.tokens))
    return lanes[0], graph


def row_of(prompt: list[int], most: int, **fields: object) -> Row:
    """Make a row that continues a prompt."""
    before = len(prompt) - 1
    return Row(prompt[:1], before + most, prefix=tuple(prompt[1:]), prompt=before, **fields)  # type: ignore[arg-type]
