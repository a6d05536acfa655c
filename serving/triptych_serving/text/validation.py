"""Validation of a request's texts, whose errors name them as the wire does."""

import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from triptych_serving.errors import InvalidInputError
from triptych_serving.text.tokenizers import is_unicode
from triptych_text.steps import Steps

Encoded = TypeVar("Encoded", bound=Sized)
BATCH_CHARACTERS = 16_384  # that are tokenized in one step, unless a text is longer
BATCH_TEXTS = 512
UNLIMITED = sys.maxsize


@dataclass(frozen=True)
class InputNames:
    """Field names of inputs: `contents[3]`, or `inputs[3].text_pair`; without a list, the parts are fields: `text_pair`.

    An input with a single named part is that part: `pairs[3].source`.
    """

    list: str = "contents"
    parts: tuple[str, ...] = ("",)
    owners: Sequence[int] = ()  # index of the element that each input belongs to; empty: inputs are the elements

    def whole(self, index: int) -> str:
        if not self.list:
            return self.parts[0]
        single = self.parts[0] if len(self.parts) == 1 else ""
        return f"{self.list}[{self.owners[index] if self.owners else index}]" + (f".{single}" if single else "")

    def part(self, index: int, part: int) -> str:
        name = self.parts[part]
        return f"{self.list}[{index}].{name}" if name and self.list else name or self.whole(index)

    def too_long(self, index: int, size: str, limits: "TextLimits", text: str) -> InvalidInputError:
        """Return the error for an input of `size` that begins with `text`."""
        return InvalidInputError(
            self.whole(index), f"{size} are too long, the model takes at most {limits.tokens:,} tokens; split the text"
        )


@dataclass(frozen=True)
class SentenceNames(InputNames):
    """Field names of the sentences of texts."""

    def too_long(self, index: int, size: str, limits: "TextLimits", text: str) -> InvalidInputError:
        beginning = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
        return InvalidInputError(
            self.whole(index),
            f"{size} are too long for one sentence, the model takes at most {limits.tokens:,} tokens; it begins {beginning!r}",
        )


@dataclass(frozen=True)
class PrefixNames(InputNames):
    """Field names of target prefixes."""

    list: str = "options.target_prefix"

    def too_long(self, index: int, size: str, limits: "TextLimits", text: str) -> InvalidInputError:
        most = limits.tokens + 1
        return InvalidInputError(
            self.whole(index), f"{size} are too long, they must be less than max_length, which is {most:,}"
        )


CONTENTS = InputNames()
EMPTY = "the text is empty"
NOT_UNICODE = "the text is not Unicode, it has a lone surrogate"
SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class TextLimits:
    """Maximum length of an input, all parts together."""

    tokens: int  # including special ones
    characters: int  # longer inputs are rejected before tokenization, which would be expensive
    least: int = 0  # tokens; some tokenizers drop characters


def encode_steps(
    encode: Callable[[list[Any]], list[Encoded]],
    inputs: Sequence[tuple[str, ...]],
    names: InputNames,
    limits: TextLimits,
    most: int = UNLIMITED,
    read: Callable[[Encoded], Any] | None = None,
) -> Steps[list[Any]]:
    """Tokenize texts (1-tuples) or pairs in small steps.

    Args:
        encode: a batch call of a tokenizer; the length of a result is its number of tokens.
        inputs: as many parts each as `names` has, or fewer.
        limits: for each input.
        most: tokens of all inputs.
        read: makes what is returned of each result of `encode`, which takes much memory.

    Raises:
        InvalidInputError: a text is empty, too long or not Unicode; names it.
    """
    sizes = [_check(index, parts, names, limits) for index, parts in enumerate(inputs)]
    done: list[Any] = []
    left = most
    for start, end in _batches(sizes):
        try:
            encodings = encode([parts[0] if len(parts) == 1 else parts for parts in inputs[start:end]])
        except TypeError as error:  # tokenizers reject lone surrogates
            raise _not_unicode(inputs, names) from error
        for index, encoding in enumerate(encodings, start):
            tokens = len(encoding)
            left -= tokens
            if tokens > limits.tokens:
                raise names.too_long(index, f"{tokens:,} tokens", limits, inputs[index][0])
            if tokens < limits.least:
                raise InvalidInputError(names.whole(index), EMPTY)
        if left < 0:
            problem = f"more than {most:,} tokens in one request, at most {most:,} can wait (--max-queue-tokens); send fewer"
            raise InvalidInputError(names.list, problem)
        done += encodings if read is None else map(read, encodings)
        yield
    return done


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of inputs that are tokenized together; `sizes` in characters."""
    start = characters = 0
    for index, size in enumerate(sizes):
        if index > start and (characters + size > BATCH_CHARACTERS or index - start == BATCH_TEXTS):
            yield start, index
            start, characters = index, 0
        characters += size
    if start < len(sizes):
        yield start, len(sizes)


def _check(index: int, parts: tuple[str, ...], names: InputNames, limits: TextLimits) -> int:
    """Reject an input that is empty or too long; return its number of characters."""
    for part, text in enumerate(parts):
        if not text.strip():
            raise InvalidInputError(names.part(index, part), EMPTY)
    characters = sum(map(len, parts))
    if characters > limits.characters:
        raise names.too_long(index, f"{characters:,} characters", limits, parts[0])
    return characters


def _not_unicode(inputs: Sequence[tuple[str, ...]], names: InputNames) -> InvalidInputError:
    texts = ((names.part(index, part), text) for index, parts in enumerate(inputs) for part, text in enumerate(parts))
    field = next(field for field, text in texts if not is_unicode(text))
    return InvalidInputError(field, NOT_UNICODE)
