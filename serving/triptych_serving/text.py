"""Text to ids and back, with the bundle's own tokenizer."""

import re
from collections.abc import Sequence
from pathlib import Path

from triptych_serving.textinput import CONTENTS, Names, PartNames, PrefixNames, SentenceNames, TextLimits, encode_inputs
from triptych_serving.tokenizing import read_tokenizer

REPLACEMENT = "\ufffd"  # what an unfinished UTF-8 sequence decodes to
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token that is one byte of a character that the vocabulary lacks


class TextCodec:
    """One bundle's tokenizer. Safe to use from several threads.

    Args:
        path: `tokenizer.json`.
        max_source: the longest source that the model takes, end of sentence included.
        max_target: the longest target, counted alike.

    Raises:
        BundleError: the file is not a tokenizer.
    """

    def __init__(self, path: Path, max_source: int, max_target: int | None = None) -> None:
        self._tokenizer = read_tokenizer(path)
        vocabulary = self._tokenizer.get_vocab()
        longest_piece = max(map(len, vocabulary))
        self._source, self._target = (
            TextLimits(tokens, tokens * longest_piece) for tokens in (max_source, max_target or max_source)
        )
        self._bytes = frozenset(token for piece, token in vocabulary.items() if BYTE.fullmatch(piece))

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str], names: Names = CONTENTS) -> list[list[int]]:
        """Ids of each text, end of sentence last. Releases the GIL.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names its index.
        """
        return self._encode(texts, names, self._source)

    def encode_sentences(self, sentences: Sequence[str], owners: Sequence[int]) -> list[list[int]]:
        """The same for sentences of texts.

        Args:
            sentences: of all texts.
            owners: for each the index of its text, for errors.

        Raises:
            InvalidInputError: as for `encode`.
        """
        return self._encode(sentences, SentenceNames(owners=owners), self._source)

    def encode_targets(self, texts: Sequence[str], names: PartNames) -> list[list[int]]:
        """The same for texts on the target side, whose limit is another.

        Raises:
            InvalidInputError: as for `encode`.
        """
        return self._encode(texts, names, self._target)

    def encode_prefixes(self, prefixes: Sequence[str], max_tokens: int) -> list[tuple[int, ...]]:
        """Ids of beginnings, without an end of sentence; a blank one has none.

        Args:
            prefixes: of the translations.
            max_tokens: of the whole translations.

        Raises:
            InvalidInputError: one is not shorter than the translation may be, or not Unicode; names its index.
        """
        owners = [index for index, prefix in enumerate(prefixes) if prefix.strip()]
        if not owners:
            return [()] * len(prefixes)
        encodings = encode_inputs(
            lambda texts: self._tokenizer.encode_batch(texts, add_special_tokens=False),
            [(prefixes[index],) for index in owners],
            PrefixNames(owners=owners),
            TextLimits(max_tokens - 1, self._target.characters),
        )
        found = {index: tuple(encoding.ids) for index, encoding in zip(owners, encodings, strict=True)}
        return [found.get(index, ()) for index in range(len(prefixes))]

    def fits(self, sentence: str) -> bool:
        """Whether the model takes it as one source."""
        # A token has a byte at least; a space comes before, an end behind.
        if len(sentence.encode()) + 2 <= self._source.tokens:
            return True
        return len(sentence) <= self._source.characters and len(self._tokenizer.encode(sentence)) <= self._source.tokens

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of ids."""
        texts: list[str] = self._tokenizer.decode_batch([list(row) for row in rows])
        return texts

    def decode_stable(self, row: Sequence[int]) -> str:
        """The part of an unfinished row's text that later tokens cannot change.

        That is whole characters only, and no white space at the end, which some decoders join to what follows. A run of single
        bytes is one text to a decoder, valid as a whole or not at all: it waits for the token behind it.
        """
        ids = list(row)
        while ids and ids[-1] in self._bytes:
            ids.pop()
        text: str = self._tokenizer.decode(ids)
        return text.rstrip(REPLACEMENT).rstrip()

    def _encode(self, texts: Sequence[str], names: Names, limits: TextLimits) -> list[list[int]]:
        inputs = [(text,) for text in texts]
        return [encoding.ids for encoding in encode_inputs(self._tokenizer.encode_batch, inputs, names, limits)]


class Pieces:
    """Cuts a growing text into pieces to be appended: joined, they are the text."""

    def __init__(self) -> None:
        self._sent = ""

    def advance(self, text: str) -> str:
        """What `text` adds to the pieces before; empty where it adds nothing yet."""
        if not text.startswith(self._sent):
            return ""  # a row that is tried once more begins anew: wait until it has caught up
        piece = text[len(self._sent) :]
        self._sent = text
        return piece
