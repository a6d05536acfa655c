"""Batches of texts through a BERT graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import TextTokens
from triptych_serving.encoding.engine import Runner
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Array, Session
from triptych_serving.scheduling.request import Item

SCORES, TOKENS, LOG_PROBABILITIES = "scores", "tokens", "log_probabilities"
SIMILARITIES, STATES = "similarities", "states"
NEXT_SENTENCE, PROBABILITIES, LOGITS, START, END = "next_sentence", "probabilities", "logits", "start", "end"
PER_MASK = frozenset({SCORES, TOKENS, LOG_PROBABILITIES})


@dataclass(eq=False, slots=True)
class TextRow:
    """One text and its requested outputs: the payload of an Item, whose result is a dict of the outputs by name.

    A row's outputs: `mean`, `cls` [E]; `scores`, `tokens` [masks, k]; `log_probabilities` [masks, targets];
    `next_sentence` [2]; `probabilities` [C] or [T, C]; `logits` [C]; `start`, `end` [T]; `similarities` [V], to the sum
    of the tokens, where those of segment 1 are subtracted; `states` [T, E].
    """

    ids: NDArray[np.int32]  # [T]
    segments: NDArray[np.int32]  # [T]
    outputs: tuple[str, ...]
    places: NDArray[np.int64]  # [masks], positions in this text; empty if no requested output is per mask
    k: int = 1  # candidates of a mask, for scores and tokens
    targets: NDArray[np.int64] | None = None  # ids, for log_probabilities


@dataclass(eq=False, slots=True)
class TextBatch:
    """Arguments of the session."""

    inputs: dict[str, Array]
    outputs: tuple[str, ...]


class TextRunner(Runner):
    """Runs rows of any length and outputs together; fetches only outputs that a row of the batch requests.

    Args:
        vocabulary: its size; no mask has more candidates.
        most_rows: that the graph takes; 0: any number.
    """

    def __init__(self, session: Session, tokens: TextTokens, vocabulary: int, most_rows: int = 0) -> None:
        self._session = session
        self._tokens = tokens
        self._vocabulary = vocabulary
        self._most_rows = most_rows
        self._takes_places = "places" in session.inputs

    def warm_up(self) -> None:
        ids = np.full(2, self._tokens.pad, np.int32)
        places = np.array([1] if self._takes_places else [], np.int64)
        outputs = tuple(name for name in self._session.outputs if name != LOG_PROBABILITIES)
        rows = [TextRow(ids[:length], np.zeros(length, np.int32), outputs, places[: length - 1]) for length in (1, 2)]
        rows = rows[-1:] if self._most_rows == 1 else rows
        self.run(self.prepare([Item(row, len(row.ids)) for row in rows]))

    def prepare(self, items: Sequence[Item]) -> TextBatch:
        rows: list[TextRow] = [item.payload for item in items]
        lengths = np.array([len(row.ids) for row in rows], np.int32)
        ids = stack_rows([row.ids for row in rows], self._tokens.pad, np.int32)
        segments = stack_rows([row.segments for row in rows], 0, np.int32)
        inputs: dict[str, Array] = {"ids": ids, "segments": segments, "lengths": lengths}
        if self._takes_places:
            inputs["places"] = np.concatenate([row.places + index * ids.shape[1] for index, row in enumerate(rows)])
            most = max((row.k for row in rows if SCORES in row.outputs), default=1)
            inputs["k"] = np.array([min(self._vocabulary, most)], np.int64)
        return TextBatch(inputs, requested_outputs(rows))

    def run(self, batch: TextBatch) -> dict[str, Array]:
        return dict(zip(batch.outputs, self._session.run(batch.inputs, batch.outputs), strict=True))

    def finish(self, items: Sequence[Item], outputs: dict[str, Array]) -> None:
        copy_results(items, outputs)


def requested_outputs(rows: Sequence[TextRow]) -> tuple[str, ...]:
    """Return the outputs that any row requests, each once."""
    return tuple(dict.fromkeys(name for row in rows for name in row.outputs))


def copy_results(items: Sequence[Item], outputs: Mapping[str, Array]) -> None:
    """Copy each row's part of a batch's outputs to its item; outputs may have more rows, masks and positions."""
    first_mask = 0
    for index, item in enumerate(items):
        row: TextRow = item.payload
        masks = slice(first_mask, first_mask + len(row.places))
        first_mask = masks.stop
        item.result = {name: _part(name, outputs[name], index, masks, row) for name in row.outputs}


def _part(name: str, output: Array, index: int, masks: slice, row: TextRow) -> Array:
    """Copy one row's part of an output: a view would keep the whole batch in memory."""
    if name == LOG_PROBABILITIES:
        return np.asarray(output[masks][:, row.targets])
    if name in PER_MASK:
        return np.array(output[masks, : row.k])
    if name in (START, END) or output.ndim == 3:
        return np.array(output[index, : len(row.ids)])
    return np.array(output[index])
