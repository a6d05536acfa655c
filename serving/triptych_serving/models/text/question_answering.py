"""Extractive question answering: the parts of a context that answer a question (Devlin et al. 2019, section 4.2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from triptych_serving.bundle.manifest import QUESTION_ANSWERING, TextManifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import END, START
from triptych_serving.models.labels import check_range
from triptych_serving.models.text.task import TextInput, TextTask, make_item, trim
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertTokenizer
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
    tokenizer: BertTokenizer,
    _: TextManifest,
    limits: QueueLimits,
    inputs: Sequence[tuple[str, str]],
    *,
    top_k: int | None = None,
    max_answer_length: int | None = None,
) -> Steps[Work[AnsweredQuestion]]:
    """Check and tokenize (question, context) pairs in small steps.

    Answers are extended to whole words, and no two of them overlap.

    Args:
        tokenizer: the model's.
        limits: of the queue and of one request.
        inputs: order is kept.
        top_k: answers to each question, 1 to 100; 1 by default.
        max_answer_length: tokens; 15 by default.

    Raises:
        InvalidInputError: a question or context is empty, both together are too long, or an option is out of range.
    """
    k = check_range("top_k", 1 if top_k is None else top_k, 1, MAX_TOP_K)
    length = check_range("max_answer_length", DEFAULT_LENGTH if max_answer_length is None else max_answer_length, 1)
    encodings = yield from tokenizer.encode(inputs, KeptEncoding, NAMES, offsets=True, most=limits.waiting_tokens)
    items = [make_item(encoding, (START, END)) for encoding in encodings]
    size = sum(len(context) for _, context in inputs)
    return Work(items, partial(_read, items, inputs, encodings, k, length), size, "inputs")


def _read(
    items: Sequence[Item], inputs: Sequence[tuple[str, str]], encodings: Sequence[KeptEncoding], k: int, length: int
) -> Iterator[AnsweredQuestion]:
    for item, (_, context), encoding in zip(items, inputs, encodings, strict=True):
        yield AnsweredQuestion(_answers(item, context, encoding, k, length), item.size)


def _answers(item: Item, context: str, encoding: KeptEncoding, k: int, length: int) -> tuple[ExtractedAnswer, ...]:
    places = [place for place, part in enumerate(encoding.sequence_ids) if part == 1]  # the context's tokens, in one run
    if not places:
        return ()
    first, words, offsets = places[0], encoding.word_ids, encoding.offsets
    scores = _scores(item.result[START][places], item.result[END][places], length)
    taken: list[ExtractedAnswer] = []
    for flat in np.argsort(-scores, axis=None, kind="stable"):
        begin, more = divmod(int(flat), scores.shape[1])
        if scores[begin, more] <= 0:
            break
        left, right = _whole_words(words, first + begin, first + begin + more)
        start, end = trim(context, offsets[left][0], offsets[right][1])
        if all(end <= other.start or start >= other.end for other in taken):
            taken.append(ExtractedAnswer(context[start:end], float(scores[begin, more]), start, end))
        if len(taken) == k:
            break
    return tuple(taken)


def _scores(start: Array, end: Array, length: int) -> Array:
    """Return the probability of each span, [first token, tokens after it]; 0 for spans that leave the context."""
    starts, ends = _softmax(start), _softmax(end)
    scores = np.zeros((len(starts), min(length, len(starts))), np.float32)
    for more in range(scores.shape[1]):
        scores[: len(starts) - more, more] = starts[: len(starts) - more] * ends[more:]
    return scores


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _whole_words(words: Sequence[int | None], left: int, right: int) -> tuple[int, int]:
    """Extend a span to the rest of its first and last word."""
    while left > 0 and words[left] is not None and words[left - 1] == words[left]:
        left -= 1
    while right + 1 < len(words) and words[right] is not None and words[right + 1] == words[right]:
        right += 1
    return left, right


def _example(_: BertTokenizer, __: TextManifest, text: str) -> TextInput:
    return text, text


QUESTION_ANSWERING_TASK = TextTask(QUESTION_ANSWERING, "answers questions", prepare_question_answering, _example, NAMES)
