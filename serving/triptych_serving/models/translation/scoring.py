"""Scoring: the probability of given translations, teacher-forced, one graph run per batch of pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import BARE, Framing, SpecialTokens
from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions, Runner
from triptych_serving.encoding.options import Work
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Array, Session
from triptych_serving.runtime.session_pool import SessionPool
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_serving.text.validation import InputNames
from triptych_text.steps import Steps

LOGIT_BYTES = 64 << 20  # per batch: the graph's largest array is [pairs, target tokens, vocabulary], fp32
SOURCES, TARGETS = (InputNames("pairs", (part,)) for part in ("source", "target"))


@dataclass(frozen=True)
class TranslationScore:
    """Log-probabilities of one translation."""

    token_log_probabilities: NDArray[np.float32]  # [target tokens], natural logarithms, including the end of the sentence

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole translation."""
        return float(self.token_log_probabilities.sum(dtype=np.float64))


@dataclass(eq=False, slots=True)
class ScoreRow:
    """A source and its translation: the payload of an Item, whose result is the log-probability of each target token."""

    source: Sequence[int]  # ids, including end of sentence and frame
    target: Sequence[int]  # likewise
    forced: int = 0  # number of first target ids that belong to the frame, whose probability does not count


class ScoreRunner(Runner):
    """Runs pairs of different lengths together.

    Args:
        session: graph `source [B, S], lengths [B], targets [B, 1 + T] -> log_probabilities [B, T]`, or several sessions of it.
    """

    def __init__(self, session: Session | SessionPool, tokens: SpecialTokens) -> None:
        self._session = session
        self._tokens = tokens

    def warm_up(self) -> None:
        """Run a short pair, so that the first request finds everything allocated."""
        end = [self._tokens.end]
        self.run(self.prepare([Item(ScoreRow(end, end), 1)]))

    def prepare(self, items: Sequence[Item]) -> dict[str, Array]:
        """Pad and stack the pairs."""
        rows: list[ScoreRow] = [item.payload for item in items]
        start, pad = self._tokens.start, self._tokens.pad
        return {
            "source": stack_rows([row.source for row in rows], pad, np.int64),
            "lengths": np.array([len(row.source) for row in rows], np.int32),
            "targets": stack_rows([[start, *row.target] for row in rows], pad, np.int64),
        }

    def run(self, batch: dict[str, Array]) -> Array:
        """Run the graph; return log-probabilities `[B, T]`."""
        [log_probabilities] = self._session.run(batch, ["log_probabilities"])
        return log_probabilities

    def finish(self, items: Sequence[Item], outputs: Array) -> None:
        """Store each pair's own copy."""
        for item, log_probabilities in zip(items, outputs, strict=True):
            row: ScoreRow = item.payload
            item.result = log_probabilities[row.forced : len(row.target)].copy()


class Scorer:
    """Scores pairs; its engine starts at once. Thread-safe.

    Args:
        session: the score graph, as for ScoreRunner.
        runs: concurrent batches.
        gives_way: see OneShotOptions.
    """

    def __init__(
        self,
        session: Session | SessionPool,
        tokenizer: TranslationTokenizer,
        tokens: SpecialTokens,
        runs: int,
        limits: BatchLimits,
        gives_way: bool,
    ) -> None:
        self._tokenizer, self._limits = tokenizer, limits
        most = max(1, LOGIT_BYTES // (4 * tokenizer.vocabulary))
        limits = replace(limits, batch_tokens=min(limits.batch_tokens, most))
        self.engine = OneShotEngine(ScoreRunner(session, tokens), OneShotOptions(runs, limits, gives_way=gives_way))
        self.engine.start()

    def prepare_steps(self, pairs: Sequence[tuple[str, str]], framing: Framing = BARE) -> Steps[Work[TranslationScore]]:
        """Check, tokenize and frame sources and targets in small steps.

        Raises:
            InvalidInputError: a text is empty, too long or not Unicode; names it.
        """
        forced, most = framing.forced, self._limits.waiting_tokens
        sources = yield from self._tokenizer.encode_source_steps([one for one, _ in pairs], framing, SOURCES, most=most)
        targets = yield from self._tokenizer.encode_targets([one for _, one in pairs], TARGETS, len(forced), most)
        items = [
            Item(ScoreRow(source.ids, [*forced, *target], len(forced)), max(len(source.ids), len(forced) + len(target)))
            for source, target in zip(sources, targets, strict=True)
        ]
        return Work(items, lambda: (TranslationScore(item.result) for item in items), sum(map(len, targets)), "pairs")
