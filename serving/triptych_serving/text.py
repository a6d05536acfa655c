"""Text to ids and back, with the bundle's own tokenizer."""

from collections.abc import Sequence
from pathlib import Path

from triptych_serving.errors import InvalidInputError
from triptych_serving.tokenizing import is_unicode, read_tokenizer

REPLACEMENT = "\ufffd"  # what an unfinished UTF-8 sequence decodes to


class TextCodec:
    """One bundle's tokenizer. Safe to use from several threads.

    Args:
        path: `tokenizer.json`.
        max_tokens: the longest source that the model takes, end of sentence included.

    Raises:
        BundleError: the file is not a tokenizer.
    """

    def __init__(self, path: Path, max_tokens: int) -> None:
        self._tokenizer = read_tokenizer(path)
        self._max_tokens = max_tokens
        self._longest_piece = max(len(piece) for piece in self._tokenizer.get_vocab())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, end of sentence last. Releases the GIL.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names its index.
        """
        for index, text in enumerate(texts):
            self._check(index, text)
        try:
            encodings = self._tokenizer.encode_batch(list(texts))
        except TypeError as error:  # it takes no lone surrogates
            raise _not_unicode(texts) from error
        ids = [encoding.ids for encoding in encodings]
        for index, row in enumerate(ids):
            if len(row) > self._max_tokens:
                raise _too_long(index, f"{len(row):,} tokens", self._max_tokens)
        return ids

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of ids."""
        texts: list[str] = self._tokenizer.decode_batch([list(row) for row in rows])
        return texts

    def decode_stable(self, row: Sequence[int]) -> str:
        """The part of an unfinished row's text that later tokens cannot change: whole characters only."""
        text: str = self._tokenizer.decode(list(row))
        return text.rstrip(REPLACEMENT)

    def _check(self, index: int, text: str) -> None:
        if not text.strip():
            raise InvalidInputError(f"contents[{index}]", "the text is empty")
        if len(text) > self._max_tokens * self._longest_piece:  # tokenizing megabytes to refuse them would be dear
            raise _too_long(index, f"{len(text):,} characters", self._max_tokens)


class Pieces:
    """Cuts a growing text into pieces to be appended: joined, they are the text."""

    def __init__(self) -> None:
        self._sent = ""

    def advance(self, text: str) -> str:
        """What `text` adds to the pieces before; empty where it adds nothing yet."""
        if not text.startswith(self._sent):
            return ""  # a character that was whole so far has changed: wait until it is settled
        piece = text[len(self._sent) :]
        self._sent = text
        return piece


def _not_unicode(texts: Sequence[str]) -> InvalidInputError:
    index = next(index for index, text in enumerate(texts) if not is_unicode([text]))
    return InvalidInputError(f"contents[{index}]", "the text is not Unicode, it has a lone surrogate")


def _too_long(index: int, size: str, limit: int) -> InvalidInputError:
    return InvalidInputError(
        f"contents[{index}]", f"{size} are too long, the model takes at most {limit:,} tokens; split the text"
    )
