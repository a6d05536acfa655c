"""Extractive question answering: the parts of a context that answer a question (Devlin et al. 2019, section 4.2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from triptych_serving.bundle.manifest import QUESTION_ANSWERING
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import END, START
from triptych_serving.models.request_cost import check_range
from triptych_serving.models.text.task import TextParts, TextTask, continued, make_item, text_twice, trim
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Item
from triptych_serving.text.tokenizers import KeptEncoding
from triptych_serving.text.validation import InputNames
from triptych_text.steps import Steps

NAMES = InputNames("inputs", ("question", "context"))
MAX_TOP_K = 100
DEFAULT_LENGTH = 15  # tokens


@dataclass(frozen=True, slots=True)
class ExtractedAnswer:
    """A part of a context that answers the question."""

    text: str
    score: float  # probability of the first token times that of the last
    start: int  # Unicode code points from the start of the context
    end: int  # exclusive


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """The answers to one question, best first."""

    answers: tuple[ExtractedAnswer, ...]
    token_count: int  # question and context, including [CLS] and [SEP]


def prepare_question_answering(
    model: TextParts,
    inputs: Sequence[tuple[str, str]],
    *,
    top_k: int | None = None,
    max_answer_length: int | None = None,
) -> Steps[Work[AnsweredQuestion]]:
    """Check and tokenize (question, context) pairs in small steps.

    Answers are extended to whole words; no two of them overlap, and none is white space alone.

    Args:
        inputs: order is kept.
        top_k: answers to each question, 1 to 100; 1 by default.
        max_answer_length: tokens; 15 by default.

    Raises:
        InvalidInputError: a question or context is empty, both together are too long, or an option is out of range.
    """
    k = check_range("top_k", 1 if top_k is None else top_k, 1, MAX_TOP_K)
    length = check_range("max_answer_length", DEFAULT_LENGTH if max_answer_length is None else max_answer_length, 1)
    encodings = yield from model.tokenizer.encode(inputs, KeptEncoding, NAMES, offsets=True, most=model.limits.waiting_tokens)
    items = [make_item(encoding, (START, END)) for encoding in encodings]

    def read() -> Iterator[AnsweredQuestion]:
        for item, (_, context), encoding in zip(items, inputs, encodings, strict=True):
            yield AnsweredQuestion(_answers(item, context, encoding, k, length), item.size)

    return Work(items, read, sum(len(context) for _, context in inputs), "inputs")


def _answers(item: Item, context: str, encoding: KeptEncoding, k: int, length: int) -> tuple[ExtractedAnswer, ...]:
    places = [place for place, part in enumerate(encoding.sequence_ids) if part == 1]  # the context's tokens, in one run
    if not places:
        return ()
    first, inner, offsets = places[0], continued(context, encoding), encoding.offsets
    # Of the context's tokens and [CLS], which stands for no answer and whose share no answer has.
    starts, ends = (_softmax(item.result[name][[0, *places]])[1:] for name in (START, END))
    taken: list[ExtractedAnswer] = []
    free = [_best_span(starts, ends, 0, len(places), length)]  # a heap with the best span of each gap between answers
    while free and len(taken) < k and free[0].rank < 0:
        span = heappop(free)
        left, right = _whole_words(inner, first + span.begin, first + span.end)
        start, end = trim(context, offsets[left][0], offsets[right][1])
        if (text := context[start:end]).strip():  # some tokenizers have tokens for white space
            taken.append(ExtractedAnswer(text, -span.rank, start, end))
        for low, high in ((span.low, left - first), (right - first + 1, span.high)):
            if low < high:
                heappush(free, _best_span(starts, ends, low, high, length))
    return tuple(taken)


class _Span(NamedTuple):
    rank: float  # minus its probability
    begin: int  # first token
    end: int  # last token
    low: int  # first token of the gap
    high: int  # one more than the last token of the gap


def _best_span(starts: Array, ends: Array, low: int, high: int, length: int) -> _Span:
    """Return the likeliest span of up to `length` tokens from `low` up to `high`, in a time that hardly depends on `length`."""
    starts, ends = starts[low:high], ends[low:high]
    best, width, most = starts.copy(), 1, min(length, high - low)  # best start among the last `width` tokens
    while width < most:
        more = min(width, most - width)
        best[more:] = np.maximum(best[more:], best[:-more])
        width += more
    scores = best * ends
    end = int(scores.argmax())
    first = max(0, end + 1 - most)
    return _Span(-float(scores[end]), low + first + int(starts[first : end + 1].argmax()), low + end, low, high)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _whole_words(inner: Sequence[bool], left: int, right: int) -> tuple[int, int]:
    """Extend a span to the rest of its first and last word; `inner` tells which tokens continue a word."""
    while inner[left]:
        left -= 1
    while right + 1 < len(inner) and inner[right + 1]:
        right += 1
    return left, right


QUESTION_ANSWERING_TASK = TextTask(QUESTION_ANSWERING, "answers questions", prepare_question_answering, text_twice, NAMES)
