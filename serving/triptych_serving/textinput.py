"""A request's texts: checked, tokenized, and named in errors as the wire names them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from triptych_serving.errors import InvalidInputError
from triptych_serving.tokenizing import Encoding, is_unicode


@dataclass(frozen=True)
class Names:
    """How the wire calls the inputs: `contents[3]`, or `inputs[3].text_pair`."""

    list: str = "contents"
    parts: tuple[str, ...] = ("",)

    def whole(self, index: int) -> str:
        return f"{self.list}[{index}]"

    def part(self, index: int, part: int) -> str:
        name = self.parts[part]
        return f"{self.whole(index)}.{name}" if name else self.whole(index)


CONTENTS = Names()


@dataclass(frozen=True)
class TextLimits:
    """How long an input may be, its parts together."""

    tokens: int  # special ones included
    characters: int  # with more it is refused without a look: tokenizing megabytes to refuse them would be dear


def encode_inputs(
    encode: Callable[[list[Any]], list[Encoding]], inputs: Sequence[tuple[str, ...]], names: Names, limits: TextLimits
) -> list[Encoding]:
    """Tokenize texts (1-tuples) or pairs.

    Args:
        encode: a batch call of a tokenizer.
        inputs: as many parts each as `names` has, or fewer.
        names: for errors.
        limits: of each input.

    Raises:
        InvalidInputError: a text is empty, too long or not Unicode; names it.
    """
    for index, parts in enumerate(inputs):
        _check(index, parts, names, limits)
    try:
        encodings = encode([parts[0] if len(parts) == 1 else parts for parts in inputs])
    except TypeError as error:  # it takes no lone surrogates
        raise _not_unicode(inputs, names) from error
    for index, encoding in enumerate(encodings):
        if len(encoding) > limits.tokens:
            raise _too_long(names.whole(index), f"{len(encoding):,} tokens", limits)
    return encodings


def _check(index: int, parts: tuple[str, ...], names: Names, limits: TextLimits) -> None:
    for part, text in enumerate(parts):
        if not text.strip():
            raise InvalidInputError(names.part(index, part), "the text is empty")
    characters = sum(map(len, parts))
    if characters > limits.characters:
        raise _too_long(names.whole(index), f"{characters:,} characters", limits)


def _too_long(field: str, size: str, limits: TextLimits) -> InvalidInputError:
    return InvalidInputError(field, f"{size} are too long, the model takes at most {limits.tokens:,} tokens; split the text")


def _not_unicode(inputs: Sequence[tuple[str, ...]], names: Names) -> InvalidInputError:
    texts = ((names.part(index, part), text) for index, parts in enumerate(inputs) for part, text in enumerate(parts))
    field = next(field for field, text in texts if not is_unicode(text))
    return InvalidInputError(field, "the text is not Unicode, it has a lone surrogate")
