"""Postprocessing of translations: finished rows, one for each sentence, become texts again."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from triptych_serving.models.translation.preprocess import PreparedText
from triptych_serving.scheduling.request import Finish, Hypothesis, Row, TokenLogProbability
from triptych_serving.text.capitals import PLACEHOLDER
from triptych_serving.text.spans import Span, joined_spans, target_spans
from triptych_serving.text.translation_tokenizer import TextPieces, TranslationTokenizer

DECODED_TOGETHER = 64  # texts whose tokens are decoded in one call


@dataclass(frozen=True)
class TranslationHypothesis:
    """One translation of a text."""

    text: str
    finish: Finish  # LENGTH if a sentence reached the length limit
    token_count: int  # without ends of sentences and forced tokens
    score: float | None = None  # sum over the sentences; None if it was not requested
    # [tokens, source tokens of the whole text], 0 outside of the own sentence; None if it was not requested
    alignment: NDArray[np.float32] | None = None
    spans: tuple[Span, ...] = ()  # of its tokens in `text`; only with an alignment


@dataclass(frozen=True)
class Translation:
    """One translated text."""

    hypotheses: tuple[TranslationHypothesis, ...]  # best first, at least one
    source_token_count: int  # including ends of sentences, without the model's frame
    source_spans: tuple[Span, ...] = ()  # of the source tokens, ends of sentences empty; only with an alignment

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


def assemble(texts: Sequence[PreparedText], tokenizer: TranslationTokenizer) -> Iterator[Translation | None]:
    """Convert finished rows in small steps: yields translations, and None in between."""
    for start in range(0, len(texts), DECODED_TOGETHER):
        some = texts[start : start + DECODED_TOGETHER]
        every = [(text, at, one) for text in some for at, row in enumerate(text.rows) for one in row.hypotheses]
        sentences = tokenizer.decode([text.rows[at].shown(hypothesis.tokens) for text, at, hypothesis in every])
        decoded = {
            id(hypothesis): text.spelt(at, sentence) for (text, at, hypothesis), sentence in zip(every, sentences, strict=True)
        }
        del every
        for text in some:
            yield (yield from _output(text, decoded, tokenizer))


class GrowingText:
    """One text of a stream, whose joined pieces are at any time a prefix of its best translation.

    A sentence's pieces are sent when all sentences before it are done, so they never change.
    """

    choice = 0

    def __init__(self, text: PreparedText, tokenizer: TranslationTokenizer, index: int = 0) -> None:
        self.index, self.text, self.rows = index, text, text.rows
        self._tokenizer = tokenizer
        self._done = 0  # sentences
        self._gap = text.sentences.gaps[0]  # white space to send before the next piece
        self._pieces = TextPieces()  # of the current sentence

    @property
    def is_done(self) -> bool:
        """True if the whole text has been sent."""
        return self._done == len(self.text.rows)

    def take_log_probabilities(self) -> Sequence[TokenLogProbability]:
        """Return nothing: translations have no log-probabilities of tokens."""
        return ()

    def advance(self, changed: Row) -> str:
        """Return the next piece after one of its rows, `changed`, got more tokens or finished; often empty."""
        if self.is_done or (changed is not self._current and self._current.finish is None):
            return ""
        pieces = []
        while not self.is_done and self._current.finish is not None:
            row = self._current
            sentence = self._tokenizer.decode([row.shown(row.hypotheses[0].tokens)])[0]
            pieces.append(self._next_piece(sentence))
            self._gap += self.text.sentences.gap_after(self._done, sentence)
            self._done += 1
            self._pieces = TextPieces()
        last = (
            ""
            if self.is_done or self._is_withheld
            else self._tokenizer.decode_stable(self._current.shown(self._current.tokens))
        )
        return "".join((*pieces, self._next_piece(last)))

    def _next_piece(self, sentence: str) -> str:
        piece, self._gap = self._gap + self._pieces.advance(self.text.spelt(self._done, sentence)), ""
        return piece

    @property
    def _is_withheld(self) -> bool:
        """True if a part of the current sentence's translation may change: one in capitals, but for placeholders."""
        return self._done in self.text.capitals and PLACEHOLDER.search(self.text.sentences.texts[self._done]) is not None

    @property
    def _current(self) -> Row:
        return self.text.rows[self._done]


def _output(text: PreparedText, decoded: dict[int, str], tokenizer: TranslationTokenizer) -> Generator[None, None, Translation]:
    """Combine hypotheses by rank; a sentence with fewer contributes its last one."""
    rows = [row.hypotheses for row in text.rows]
    joined = []
    for rank in range(max(map(len, rows))):
        sentences = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in rows]
        joined.append(_joined(text, sentences, decoded, tokenizer))
        yield
    return Translation(tuple(joined), sum(row.text_size for row in text.rows), text.spans)


def _joined(
    text: PreparedText, sentences: Sequence[Hypothesis], decoded: dict[int, str], tokenizer: TranslationTokenizer
) -> TranslationHypothesis:
    search = text.rows[0].search
    cut = any(sentence.finish is Finish.LENGTH for sentence in sentences)
    translated = [decoded[id(sentence)] for sentence in sentences]
    return TranslationHypothesis(
        text.sentences.join(translated),
        Finish.LENGTH if cut else Finish.STOP,
        sum(len(row.shown(sentence.tokens)) for row, sentence in zip(text.rows, sentences, strict=True)),
        sum(sentence.score or 0.0 for sentence in sentences) if search.scores else None,
        _alignment(text, sentences) if search.alignment else None,
        _spans(text, sentences, translated, tokenizer) if search.alignment else (),
    )


def _spans(
    text: PreparedText, sentences: Sequence[Hypothesis], translated: Sequence[str], tokenizer: TranslationTokenizer
) -> tuple[Span, ...]:
    shown = [row.shown(sentence.tokens) for row, sentence in zip(text.rows, sentences, strict=True)]

    def decode(sentence: int, rows: Sequence[Sequence[int]]) -> list[str]:
        return [text.spelt(sentence, beginning) for beginning in tokenizer.decode(rows)]

    own = [target_spans(one, shown[index], partial(decode, index)) for index, one in enumerate(translated)]
    return joined_spans(text.sentences, translated, own)


def _alignment(text: PreparedText, sentences: Sequence[Hypothesis]) -> NDArray[np.float32]:
    every = [_own_attention(row, sentence) for row, sentence in zip(text.rows, sentences, strict=True)]
    if len(every) == 1:
        return every[0]
    weights = np.zeros(np.sum([own.shape for own in every], axis=0), np.float32)
    token = source = 0
    for own in every:
        tokens, sources = own.shape
        weights[token : token + tokens, source : source + sources] = own
        token, source = token + tokens, source + sources
    return weights


def _own_attention(row: Row, sentence: Hypothesis) -> NDArray[np.float32]:
    """Return the attention between the text's own tokens; weights of the source's frame are redistributed among the source.

    That is done in place: all hypotheses' attention is as large as the response.
    """
    assert sentence.attention is not None
    frame = row.frame
    own = sentence.attention[frame.forced :, frame.before : row.size - frame.after]
    if frame.before or frame.after:
        sums = own.sum(axis=1, keepdims=True)
        np.divide(own, sums, out=own, where=sums > 0)
    return own
