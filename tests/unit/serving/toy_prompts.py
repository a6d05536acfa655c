"""Tables in place of a decoder-only model's graphs. The tokens so far are read from the row's cache, as in toy_graphs."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape, Limits, SpecialTokens
from triptych_serving.bundle.manifest.text_generation import GenerationDefaults
from triptych_serving.decoding.prompt_cache import PrefixCache, PromptKVCache, PromptReader
from triptych_serving.decoding.prompt_lane_factory import PromptSpec
from triptych_serving.decoding.prompt_lanes import PromptGreedyLane, PromptSearchLane
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Row
from triptych_serving.text.vocabulary import Vocabulary

from .generate import Floats

TOKENS = 40
ENDS = (2, 3)
CONTEXT = 400
WORDS = Vocabulary([b"", b"", b"", b"", *(f" w{index}".encode() for index in range(4, TOKENS))])
SPEC = PromptSpec(SpecialTokens(0, -1, *ENDS[:1], ENDS[1:]), Limits(1, CONTEXT), GenerationDefaults(20), DecoderShape(1, 1, 2))


@lru_cache(maxsize=100_000)
def log_probabilities(history: tuple[int, ...]) -> Floats:
    """Return log-probabilities of the token after these; of the ends they grow with the length."""
    logits = np.random.default_rng((7, len(history), *history)).normal(size=TOKENS) * 2
    logits[list(ENDS)] += 0.05 * len(history) - 3
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def greedy(prompt: list[int], most: int) -> list[int]:
    """Return the tokens that greedy search adds."""
    history = list(prompt)
    while len(history) < len(prompt) + most:
        token = int(log_probabilities(tuple(history)).argmax())
        if token in ENDS:
            break
        history.append(token)
    return history[len(prompt) :]


class TablePrompts:
    """A step graph, with `edit_tokens` the search graph; `reads` has the numbers of tokens of all runs over one row."""

    inputs = ("tokens", "positions", "total", "forced", "edit_tokens", "edit_factors", "edit_offsets", "candidates")
    outputs = ("next", "top_log_probabilities", "top_tokens", "forced_log_probabilities", "log_probabilities")

    def __init__(self) -> None:
        self.reads: list[int] = []

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
        assert count == 1 or rows == 1, "the runtime appends chunks to one row only"
        assert inputs["total"] == [CONTEXT]
        if count > 1:
            self._graph.reads.append(count)
        for row, last in enumerate(inputs["positions"].tolist()):
            cache = inputs["cache_key_0"][row, 0, :, 0]
            cache[last + 1 - count : last + 1] = tokens[row]
            scores = log_probabilities(tuple(cache[: last + 1].astype(int).tolist()))
            forced = int(inputs["forced"][row])
            if "top_tokens" not in outputs:
                outputs["next"][row] = forced if forced >= 0 else scores.argmax()
                continue
            best = np.argsort(-scores, kind="stable")[: outputs["top_tokens"].shape[1]]
            outputs["top_tokens"][row], outputs["top_log_probabilities"][row] = best, scores[best]
            outputs["log_probabilities"][row] = scores
            outputs["forced_log_probabilities"][row] = scores[forced]


def make_lane(
    searches: bool, count: int = 32, prefixes: PrefixCache | None = None
) -> tuple[PromptGreedyLane | PromptSearchLane, TablePrompts]:
    """Make a lane over the tables, and return its graph."""
    graph = TablePrompts()
    cache = PromptKVCache(graph, graph, SPEC.shape, CONTEXT, count)  # type: ignore[arg-type]
    reader = PromptReader(cache, prefixes or PrefixCache(0))
    if searches:
        return PromptSearchLane(SearchSlots(cache, SPEC, TOKENS), reader, SPEC.tokens, WORDS), graph
    return PromptGreedyLane(Slots(cache, SPEC), reader, SPEC.tokens), graph


def row_of(prompt: list[int], most: int, **fields: object) -> Row:
    """Make a row that continues a prompt."""
    before = len(prompt) - 1
    return Row(prompt[:1], before + most, prefix=tuple(prompt[1:]), prompt=before, **fields)  # type: ignore[arg-type]
