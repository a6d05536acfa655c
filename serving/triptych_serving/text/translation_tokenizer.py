"""Text to ids and back, with the bundle's own tokenizer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

from triptych_serving.bundle.manifest import BARE, Framing
from triptych_serving.text.spans import Span, source_spans
from triptych_serving.text.tokenizers import Encoding, Tokenizer, read_tokenizer
from triptych_serving.text.validation import CONTENTS, InputNames, PartNames, PrefixNames, TextLimits, encode_inputs

REPLACEMENT = "\ufffd"  # what an unfinished UTF-8 sequence decodes to
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token that is one byte of a character that the vocabulary lacks


@dataclass(frozen=True, slots=True)
class EncodedSource:
    """A source text as the model reads it."""

    ids: list[int]  # end of sentence and frame included
    before: int = 0  # of these ids, how many stand before the text's own
    after: int = 0  # and behind them
    spans: tuple[Span, ...] = ()  # of the text's own tokens in it; empty where they were not asked for

    def __len__(self) -> int:
        """The text's own tokens, its end included."""
        return len(self.ids) - self.before - self.after


class TranslationTokenizer:
    """One bundle's tokenizers. Safe to use from several threads.

    Args:
        path: `tokenizer.json`.
        max_source: the longest source that the model takes, end of sentence and frame included.
        max_target: the longest target, counted alike.
        target_path: the tokenizer of targets, where it is another.

    Raises:
        BundleError: a file is not a tokenizer.
    """

    def __init__(self, path: Path, max_source: int, max_target: int | None = None, target_path: Path | None = None) -> None:
        self._tokenizer = read_tokenizer(path)
        self._target_tokenizer = self._tokenizer if target_path in (None, path) else read_tokenizer(target_path)
        vocabulary = self._target_tokenizer.get_vocab()
        self._source = _limits(self._tokenizer, max_source)
        self._target = _limits(self._target_tokenizer, max_target or max_source)
        self._expands = _expands(self._tokenizer)
        self._bytes = frozenset(token for piece, token in vocabulary.items() if BYTE.fullmatch(piece))
        self._leads = {"": 0}  # tokens of what frames put before a text

    @property
    def vocabulary(self) -> int:
        """Number of target tokens."""
        return int(self._target_tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str], names: InputNames = CONTENTS) -> list[list[int]]:
        """Ids of each text without a frame, end of sentence last. Releases the GIL.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names its index.
        """
        return [source.ids for source in self.encode_sources(texts, BARE, names)]

    def encode_sources(
        self, texts: Sequence[str], framing: Framing, names: InputNames = CONTENTS, spans: bool = False
    ) -> list[EncodedSource]:
        """Texts in their frames, with the places of their tokens where these are wanted. Releases the GIL.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names its index, and the tokens that the frame leaves.
        """
        lead = self._lead(framing.text)
        limits = TextLimits(self._source.tokens - framing.size - lead, self._source.characters)

        def frame(batch: list[str]) -> list[EncodedSource]:
            framed = [framing.text + text for text in batch] if framing.text else batch
            # Twice as fast, but it says nothing of where tokens stand.
            encodings = self._tokenizer.encode_batch(framed) if spans else self._tokenizer.encode_batch_fast(framed)
            sources = [_frame(encoding.ids, framing, lead) for encoding in encodings]
            return list(map(_with_spans, sources, encodings, batch, repeat(framing))) if spans else sources

        return encode_inputs(frame, [(text,) for text in texts], names, limits)

    def encode_targets(self, texts: Sequence[str], names: PartNames, forced: int = 0) -> list[list[int]]:
        """Ids of texts on the target side, end of sentence last.

        Args:
            texts: translations.
            names: for errors.
            forced: tokens that the model's frame puts before each.

        Raises:
            InvalidInputError: as for `encode`.
        """
        limits = TextLimits(self._target.tokens - forced, self._target.characters)
        encodings = encode_inputs(self._target_tokenizer.encode_batch_fast, [(text,) for text in texts], names, limits)
        return [encoding.ids for encoding in encodings]

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
            lambda texts: self._target_tokenizer.encode_batch_fast(texts, add_special_tokens=False),
            [(prefixes[index],) for index in owners],
            PrefixNames(owners=owners),
            TextLimits(max_tokens - 1, self._target.characters),
        )
        found = {index: tuple(encoding.ids) for index, encoding in zip(owners, encodings, strict=True)}
        return [found.get(index, ()) for index in range(len(prefixes))]

    def fits(self, sentence: str, framing: Framing = BARE) -> bool:
        """Whether the model takes it as one source."""
        room = self._source.tokens - framing.size - self._lead(framing.text)
        # A token has a byte at least; a space comes before, an end behind.
        if len(sentence.encode()) + 2 <= room and (sentence.isascii() or not self._expands):
            return True
        if len(sentence) > self._source.characters:
            return False
        return len(self._tokenizer.encode(framing.text + sentence)) <= self._source.tokens - framing.size

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of ids."""
        texts: list[str] = self._target_tokenizer.decode_batch([list(row) for row in rows])
        return texts

    def decode_stable(self, row: Sequence[int]) -> str:
        """The part of an unfinished row's text that later tokens cannot change.

        That is whole characters only, and no white space at the end, which some decoders join to what follows. A run of single
        bytes is one text to a decoder, valid as a whole or not at all: it waits for the token behind it.
        """
        ids = list(row)
        while ids and ids[-1] in self._bytes:
            ids.pop()
        text: str = self._target_tokenizer.decode(ids)
        return text.rstrip(REPLACEMENT).rstrip()

    def _lead(self, text: str) -> int:
        """Tokens of what a frame puts before a text; its last space becomes part of the text's first word."""
        if text not in self._leads:
            self._leads[text] = len(self._tokenizer.encode(text.rstrip(), add_special_tokens=False))
        return self._leads[text]


def _limits(tokenizer: Tokenizer, tokens: int) -> TextLimits:
    return TextLimits(tokens, tokens * max(map(len, tokenizer.get_vocab())))


def _frame(ids: list[int], framing: Framing, lead: int) -> EncodedSource:
    if framing is BARE:
        return EncodedSource(ids)
    before = len(framing.before) + min(lead, len(ids) - 1)
    return EncodedSource([*framing.before, *ids, *framing.after], before, len(framing.after))


def _with_spans(source: EncodedSource, encoding: Encoding, text: str, framing: Framing) -> EncodedSource:
    offsets = encoding.offsets[-len(source) :]  # the text's own are the last that the tokenizer gives
    return replace(source, spans=source_spans(text, offsets, len(framing.text)))


def _expands(tokenizer: Tokenizer) -> bool:
    """Whether it may make more bytes of a text: Unicode's compatibility forms write some characters out."""
    normalizer = b"" if tokenizer.normalizer is None else tokenizer.normalizer.__getstate__()
    return any(kind in normalizer for kind in (b"Precompiled", b"NFKC", b"NFKD"))


class TextPieces:
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
