"""Neighbors: the words whose vectors are most similar to a sum of words, as in "king -man +woman" (Mikolov et al. 2013)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import SIMILARITIES, TextRow
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import NUMBER_BYTES, check_range, check_results
from triptych_serving.models.text.fill_mask import token_of
from triptych_serving.models.text.task import NO_PLACES, TextInput, TextParts, TextTask
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_serving.text.validation import CONTENTS
from triptych_text.steps import Steps

NEIGHBORS = "neighbors"  # the capability; models whose graph has similarities have it
DEFAULT_TOP_K, MAX_TOP_K = 10, 1_000
LEFT_OUT = -2.0  # similarity of tokens that are no words, below every cosine


@dataclass(frozen=True, slots=True)
class Neighbor:
    """One word near a query."""

    score: float  # cosine
    token: int
    token_str: str


@dataclass(frozen=True, slots=True)
class NearestWords:
    """The words near one query."""

    neighbors: tuple[Neighbor, ...]  # best first
    token_count: int  # words of the query


def prepare_neighbors(model: TextParts, queries: Sequence[str], *, top_k: int | None = None) -> Steps[Work[NearestWords]]:
    """Check queries and look up their words in small steps.

    Args:
        queries: words to add, or with a hyphen before them to subtract, separated by white space.
        top_k: neighbors of each query, 1 to 1,000; 10 by default.

    Raises:
        InvalidInputError: a query is empty or too long, a word is not one token, `top_k` is out of range, or the results would
            be too large.
    """
    k = check_range("top_k", DEFAULT_TOP_K if top_k is None else top_k, 1, MAX_TOP_K)
    what = f"{len(queries):,} queries x {model.tokenizer.vocabulary:,} similarities"
    size = len(queries) * NUMBER_BYTES * model.tokenizer.vocabulary
    check_results("contents", size, what, model.limits, "send fewer queries per request")
    items = []
    for index, query in enumerate(queries):
        row = _row(model.tokenizer, CONTENTS.whole(index), query.split(), model.manifest.limits.max_tokens)
        items.append(Item(row, len(row.ids)))
        yield

    def read() -> Iterator[NearestWords]:
        for item in items:
            scores: NDArray[np.float32] = item.result[SIMILARITIES]
            scores[item.payload.ids] = LEFT_OUT
            lowest = max(0, len(scores) - k)
            best = np.flatnonzero(scores >= np.partition(scores, lowest)[lowest])
            order = best[np.argsort(-scores[best], kind="stable")][:k]  # equal ones by id
            kept = [int(token) for token in order if scores[token] > (LEFT_OUT - 1) / 2]
            yield NearestWords(tuple(Neighbor(float(scores[one]), one, model.tokenizer.piece(one)) for one in kept), item.size)

    return Work(items, read, len(items) * model.tokenizer.vocabulary)


def _row(tokenizer: BertTokenizer, field: str, words: Sequence[str], most: int) -> TextRow:
    if not 1 <= len(words) <= most:
        raise InvalidInputError(field, f"{len(words):,} words, must be from 1 to {most:,}")
    signed = [(word[0] == "-", word[1:]) if word[0] in "+-" and len(word) > 1 else (False, word) for word in words]
    ids = [token_of(tokenizer, field, "word", word) for _, word in signed]
    return TextRow(np.array(ids, np.int32), np.array([minus for minus, _ in signed], np.int32), (SIMILARITIES,), NO_PLACES)


def _example(model: TextParts, text: str) -> TextInput:
    """Return a word of the model for each word of the text."""
    ids = range(model.tokenizer.vocabulary)
    word = next(
        (word for word in map(model.tokenizer.token, ids) if word.isalpha() and len(model.tokenizer.pieces(word)) == 1), ""
    )
    return " ".join([word] * max(1, len(text.split())))


NEIGHBORS_TASK = TextTask(NEIGHBORS, "finds similar words", prepare_neighbors, _example)
