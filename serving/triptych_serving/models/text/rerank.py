"""Reranking: documents by their relevance to a query, scored by a cross-encoder with one label (Nogueira and Cho 2019)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import LOGITS, PROBABILITIES
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import ROW_BYTES, check_range, check_results
from triptych_serving.models.text.task import TextParts, TextTask, check_logits, item_maker, text_twice
from triptych_serving.text.validation import InputNames, TextLimits
from triptych_text.steps import Steps

RERANK = "rerank"  # the capability; text classifiers with one label that take pairs have it


@dataclass(frozen=True)
class QueryNames(InputNames):
    """Field names of documents, each of which is paired with the query."""

    list: str = "documents"

    def part(self, index: int, part: int) -> str:
        return "query" if part == 0 else self.whole(index)

    def too_long(self, index: int, size: str, limits: TextLimits, text: str) -> InvalidInputError:
        problem = f"{size}, with those of the query, are too long, the model takes at most {limits.tokens:,} tokens"
        return InvalidInputError(self.whole(index), f"{problem}; shorten the document or the query")


NAMES = QueryNames()


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """One document with its relevance to the query."""

    index: int  # of the document in the request
    score: float
    token_count: int  # query and document, including [CLS] and [SEP]
    truncated: bool = False


def prepare_rerank(
    model: TextParts,
    pairs: Sequence[tuple[str, str]],
    *,
    top_k: int | None = None,
    raw_scores: bool = False,
    truncate: bool = False,
) -> Steps[Work[RankedDocument]]:
    """Check and tokenize pairs of query and document in small steps; the results are the best documents, best first.

    Args:
        pairs: equal scores keep their order.
        top_k: number of documents to return; None: all.
        raw_scores: scores are logits, instead of their sigmoid.
        truncate: cut off the end of texts that are too long, of a pair first that of the longer text.

    Raises:
        InvalidInputError: a text is empty or both are too long, `top_k` is out of range, or the results would be too large.
        UnsupportedError: the bundle has no logits, and raw scores are requested.
    """
    if top_k is not None:
        check_range("top_k", top_k, 1)
    if raw_scores:
        check_logits(model.manifest)
    what = f"{len(pairs):,} documents"
    check_results(NAMES.list, len(pairs) * ROW_BYTES, what, model.limits, "send fewer documents per request")
    output = LOGITS if model.manifest.logits else PROBABILITIES
    most = model.limits.waiting_tokens
    items, truncated = yield from model.tokenizer.encode_or_truncate(
        pairs, item_maker(output), NAMES, truncate=truncate, most=most
    )

    def read() -> Iterator[RankedDocument]:
        scores = np.array([item.result[output][0] for item in items], np.float64)
        order = np.argsort(-scores, kind="stable")[:top_k]
        if output == LOGITS and not raw_scores:
            scores = 0.5 + 0.5 * np.tanh(0.5 * scores)  # the sigmoid, in a form that never overflows
        for index in order.tolist():
            yield RankedDocument(index, float(scores[index]), items[index].size, truncated[index])

    return Work(items, read, 10 * len(items), NAMES.list)


RERANK_TASK = TextTask(RERANK, "reranks documents", prepare_rerank, text_twice, NAMES)
