"""The tokenizer of a translation bundle: text to ids and back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

from triptych_serving.bundle.manifest import BARE, Framing
from triptych_serving.errors import InvalidInputError
from triptych_serving.text.spans import Span, source_spans
from triptych_serving.text.tokenizers import Encoding, Tokenizer, read_tokenizer
from triptych_serving.text.validation import (
    CONTENTS,
    UNLIMITED,
    InputNames,
    PrefixNames,
    TextLimits,
    encode_steps,
)
from triptych_serving.text.vocabulary import BYTE
from triptych_text.steps import Steps, finish

NO_TOKENS = "the text has no tokens, the model's tokenizer removes all of its characters"
REPLACEMENT = "\ufffd"  # result of decoding an unfinished UTF-8 sequence


@dataclass(frozen=True, slots=True)
class EncodedSource:
    """The ids of a source text, as the model reads them."""

    ids: list[int]  # including frame, and end of sentence if the model's sources have one
    before: int = 0  # number of ids before the text's own
    after: int = 0  # number of ids after them
    spans: tuple[Span, ...] = ()  # of the text's own tokens; empty if they were not requested

    def __len__(self) -> int:
        """Number of the text's own tokens, including its end."""
        return len(self.ids) - self.before - self.after


class TranslationTokenizer:
    """One bundle's tokenizers. Thread-safe.

    Args:
        path: `tokenizer.json`.
        max_source: maximum length of a source, including end of sentence and frame.
        max_target: maximum length of a target, counted likewise.
        target_path: the tokenizer of targets, if it is another one.

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
        self._leads = {"": 0}  # tokens of the texts that frames put before a source

    @property
    def vocabulary(self) -> int:
        """Number of target tokens."""
        return int(self._target_tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str], names: InputNames = CONTENTS) -> list[list[int]]:
        """Return the ids of each text without a frame, end of sentence last; errors as for `encode_source_steps`."""
        return [source.ids for source in finish(self.encode_source_steps(texts, BARE, names))]

    def encode_source_steps(
        self,
        texts: Sequence[str],
        framing: Framing,
        names: InputNames = CONTENTS,
        spans: bool = False,
        most: int = UNLIMITED,
    ) -> Steps[list[EncodedSource]]:
        """Encode texts with their frames in small steps. Releases the GIL.

        Args:
            framing: tokens and text around each.
            spans: True if the spans of their tokens are needed.
            most: tokens of all texts.

        Raises:
            InvalidInputError: a text is empty, has no tokens, is too long or not Unicode; names it, and the tokens that the
                frame leaves.
        """
        lead = self._lead(framing.text)
        limits = TextLimits(self._source.tokens - framing.size - lead, self._source.characters)

        def frame(batch: list[str]) -> list[EncodedSource]:
            framed = [framing.text + text for text in batch] if framing.text else batch
            # The fast variant is twice as fast, but has no offsets.
            encodings = self._tokenizer.encode_batch(framed) if spans else self._tokenizer.encode_batch_fast(framed)
            sources = [_frame(encoding.ids, framing, lead) for encoding in encodings]
            return list(map(_with_spans, sources, encodings, batch, repeat(framing))) if spans else sources

        sources = yield from encode_steps(frame, [(text,) for text in texts], names, limits, most)
        for index, source in enumerate(sources):
            if not source.ids:  # of a model whose sources have no end
                raise InvalidInputError(names.part(index, 0), NO_TOKENS)
        return sources

    def encode_targets(
        self, texts: Sequence[str], names: InputNames, forced: int = 0, most: int = UNLIMITED
    ) -> Steps[list[list[int]]]:
        """Encode target texts in small steps: their ids, end of sentence last.

        Args:
            forced: number of tokens that the model's frame puts before each.
            most: tokens of all texts.

        Raises:
            InvalidInputError: as for `encode_source_steps`.
        """
        limits = TextLimits(self._target.tokens - forced, self._target.characters)
        inputs = [(text,) for text in texts]
        return encode_steps(self._target_tokenizer.encode_batch_fast, inputs, names, limits, most, lambda target: target.ids)

    def encode_prefix_steps(self, prefixes: Sequence[str], max_tokens: int) -> Steps[list[tuple[int, ...]]]:
        """Encode target prefixes in small steps: their ids, without an end of sentence; none for a blank prefix.

        Raises:
            InvalidInputError: a prefix is not shorter than the translation may be, or not Unicode; names it.
        """
        owners = [index for index, prefix in enumerate(prefixes) if prefix.strip()]
        if not owners:
            return [()] * len(prefixes)
        encoded = yield from encode_steps(
            lambda texts: self._target_tokenizer.encode_batch_fast(texts, add_special_tokens=False),
            [(prefixes[index],) for index in owners],
            PrefixNames(owners=owners),
            TextLimits(max_tokens - 1, self._target.characters),
            read=lambda encoding: tuple(encoding.ids),
        )
        found = dict(zip(owners, encoded, strict=True))
        return [found.get(index, ()) for index in range(len(prefixes))]

    def fits(self, sentence: str, framing: Framing = BARE) -> bool:
        """Return True if the sentence fits into the model as one source."""
        room = self._source.tokens - framing.size - self._lead(framing.text)
        # Each token has at least one byte; a space is added before and an end after.
        if len(sentence.encode()) + 2 <= room and (sentence.isascii() or not self._expands):
            return True
        if len(sentence) > self._source.characters:
            return False
        return len(self._tokenizer.encode(framing.text + sentence)) <= self._source.tokens - framing.size

    def pieces(self, ids: Sequence[int], target: bool = False) -> list[str]:
        """Return tokens as they are in the vocabulary of sources or targets."""
        tokenizer = self._target_tokenizer if target else self._tokenizer
        return [str(tokenizer.id_to_token(number)) for number in ids]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode rows of ids."""
        texts: list[str] = self._target_tokenizer.decode_batch([list(row) for row in rows])
        return texts

    def decode_stable(self, row: Sequence[int]) -> str:
        """Decode the part of an unfinished row's text that later tokens cannot change.

        It contains only whole characters, and no white space at the end, which some decoders join to what follows. A decoder
        treats a run of single bytes as a whole, valid or not: it is withheld until the token after it.
        """
        ids = list(row)
        while ids and ids[-1] in self._bytes:
            ids.pop()
        text: str = self._target_tokenizer.decode(ids)
        return text.rstrip(REPLACEMENT).rstrip()

    def _lead(self, text: str) -> int:
        """Count the tokens that a frame puts before a text; its last space becomes part of the text's first word."""
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
    offsets = encoding.offsets[-len(source) :]  # the text's own offsets are the last ones
    return replace(source, spans=source_spans(text, offsets, len(framing.text)))


def _expands(tokenizer: Tokenizer) -> bool:
    """Return True if normalisation may lengthen a text: Unicode's compatibility forms expand some characters."""
    normalizer = b"" if tokenizer.normalizer is None else tokenizer.normalizer.__getstate__()
    return any(kind in normalizer for kind in (b"Precompiled", b"NFKC", b"NFKD"))


class TextPieces:
    """Cuts a growing text into pieces; joined, they are the text."""

    def __init__(self) -> None:
        self._sent = ""

    def advance(self, text: str) -> str:
        """Return what `text` adds to the earlier pieces; may be empty."""
        if not text.startswith(self._sent):
            return ""  # a retried row starts again: wait until it has caught up
        piece = text[len(self._sent) :]
        self._sent = text
        return piece
