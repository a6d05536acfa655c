"""The description of one text task, and the helpers that the tasks share."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import TextRow
from triptych_serving.errors import UnsupportedError
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_serving.text.spans import Span, bare_span
from triptych_serving.text.tokenizers import Encoding, KeptEncoding
from triptych_serving.text.validation import CONTENTS, InputNames
from triptych_text.sentences import is_unspaced
from triptych_text.steps import Steps

Result = TypeVar("Result")
TextInput = str | tuple[str, ...]  # a text, or a pair of texts

NO_PLACES: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True)
class TextParts:
    """The parts of a model that its tasks use."""

    tokenizer: BertTokenizer
    manifest: TextManifest
    limits: QueueLimits  # of the queue and of one request


def text_twice(_: TextParts, text: str) -> TextInput:
    """Return a pair as the example of a task."""
    return text, text


@dataclass(frozen=True, eq=False)
class TextTask(Generic[Result]):
    """One text task; `tasks.TEXT_TASKS` lists all of them.

    Args:
        name: the capability that a model needs, such as "fill-mask".
        verb: completes "the model ..." in logs and errors, such as "fills masks".
        prepare: `prepare(model, inputs, **options)` checks and tokenizes a request in small steps. Its options are keyword
            arguments; None selects the default. Raises InvalidInputError, which names the field.
        example: `example(model, text)` makes a valid input of a text; the warm-up runs it.
        names: of the inputs, for errors.
    """

    name: str
    verb: str
    prepare: Callable[..., Steps[Work[Result]]]
    example: Callable[[TextParts, str], TextInput] = lambda _, text: text
    names: InputNames = CONTENTS


def characters_of(inputs: Sequence[TextInput], options: Mapping[str, Any]) -> int:
    """Return the length of all inputs, and of all texts among the options, which are in tuples."""
    more = sum([sum(map(len, value)) for value in options.values() if isinstance(value, tuple)])
    return more + sum([len(given) if isinstance(given, str) else sum(map(len, given)) for given in inputs])


def make_row(encoding: Encoding | KeptEncoding, outputs: tuple[str, ...]) -> TextRow:
    """Return a row that requests `outputs`, none of them per mask."""
    return TextRow(np.asarray(encoding.ids, np.int32), np.asarray(encoding.type_ids, np.int32), outputs, NO_PLACES)


def make_item(encoding: Encoding | KeptEncoding, outputs: tuple[str, ...]) -> Item:
    """Return an engine item, as `make_row`."""
    return Item(make_row(encoding, outputs), len(encoding))


def item_maker(*outputs: str) -> Callable[[Encoding], Item]:
    """Return a function that makes an item of an encoding."""
    return partial(make_item, outputs=outputs)


def check_logits(manifest: TextManifest) -> None:
    """Reject a request for raw scores if the model has none. Raises UnsupportedError: the bundle has no logits."""
    if not manifest.logits:
        remedy = "" if manifest.next_sentence else "export it again, or "  # next-sentence prediction never has logits
        raise UnsupportedError(f"raw_scores: the model's bundle has no logits; {remedy}request scores from 0 to 1")


def trim(text: str, start: int, end: int) -> Span:
    """Exclude white space around a part of a text, which some tokenizers include; a part of white space alone is kept."""
    first, last = bare_span(text, start, end)
    return (first, last) if first < last else (start, end)


def continued(text: str, encoding: KeptEncoding, by_space: bool = False, space: int | None = None) -> list[bool]:
    """Tell which tokens of a text continue the word of the token before.

    Words are those of the tokenizer, or between white space. Scripts without spaces have a word for each token: some tokenizers
    take a run of Chinese or Thai for one. Tokens of one character, such as its bytes, are always of one word.

    Args:
        space: the token that is nothing but a space, although its offsets may be those of the character behind it.
    """
    found = []
    behind, word_before, token_before = 0, None, space
    for token, word, (start, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets, strict=True):
        shares = start < behind and token_before != space
        if by_space:
            inner = shares or (start > 0 and not re.search(r"\s", text[start - 1 : start + 1]))
        else:
            inner = word is not None and word == word_before
        found.append(inner and (shares or not is_unspaced(text[start : start + 1])))
        behind, word_before, token_before = end, word, token
    return found
