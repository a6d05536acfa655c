"""Text to ids and back, with the bundle's own tokenizer."""

from collections.abc import Sequence
from pathlib import Path

from triptych_serving.textinput import CONTENTS, TextLimits, encode_inputs
from triptych_serving.tokenizing import read_tokenizer

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
        longest_piece = max(len(piece) for piece in self._tokenizer.get_vocab())
        self._limits = TextLimits(max_tokens, max_tokens * longest_piece)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, end of sentence last. Releases the GIL.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names its index.
        """
        inputs = [(text,) for text in texts]
        return [encoding.ids for encoding in encode_inputs(self._tokenizer.encode_batch, inputs, CONTENTS, self._limits)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of ids."""
        texts: list[str] = self._tokenizer.decode_batch([list(row) for row in rows])
        return texts

    def decode_stable(self, row: Sequence[int]) -> str:
        """The part of an unfinished row's text that later tokens cannot change: whole characters only."""
        text: str = self._tokenizer.decode(list(row))
        return text.rstrip(REPLACEMENT)


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
