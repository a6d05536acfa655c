"""What the tasks of the text family share: encodings to rows, options, ranked labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from triptych_serving.encoding.text_runner import TextRow
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.results import ScoredLabel
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Item
from triptych_serving.text.tokenizers import Encoding

NO_PLACES: NDArray[np.int64] = np.zeros(0, np.int64)


def make_row(encoding: Encoding, outputs: tuple[str, ...]) -> TextRow:
    """A row that wants `outputs`, none of them per mask."""
    return TextRow(np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int32), outputs, NO_PLACES)


def make_items(encodings: Sequence[Encoding], outputs: tuple[str, ...]) -> list[Item]:
    """Such a row of each encoding."""
    return [Item(make_row(encoding, outputs), len(encoding)) for encoding in encodings]


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """A part of a text without the white space around it, which some tokenizers count in; as it is if that is all."""
    part = text[start:end]
    if not part.strip():
        return start, end
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def check_range(name: str, value: int, lowest: int, highest: int | None = None) -> int:
    """The value.

    Raises:
        InvalidInputError: it is out of range.
    """
    if value < lowest or (highest is not None and value > highest):
        bounds = f"at least {lowest:,}" if highest is None else f"{lowest:,} to {highest:,}"
        raise InvalidInputError(name, f"{value:,} is out of range, it must be {bounds}")
    return value


def rank_labels(probabilities: Array, labels: Sequence[str], top_k: int | None) -> tuple[ScoredLabel, ...]:
    """The best labels, best first; of equal ones the first."""
    order = np.argsort(-probabilities, kind="stable")[:top_k]
    return tuple(ScoredLabel(labels[index], float(probabilities[index]), int(index)) for index in order)
