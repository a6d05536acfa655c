"""Turns of candidates over the same calls."""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from tokenizers import Tokenizer

from candidates.candidate import Answer, Candidate, Decoding
from triptych_training.data.corpus import Pair, read_pairs

SETTLE_SECONDS = 0.1  # threads of the previous candidate may still spin
TUNING_SENTENCES = 64
REFERENCE_BATCH = 32
Texts = dict[tuple[str, str, int], list[str]]  # translations by family, test set and beam


@dataclass(frozen=True)
class Examples:
    """Sentence pairs of a test set in a fixed random order, so that neighbours differ in length."""

    name: str
    pairs: Sequence[Pair]
    skipped: int  # sources too long for the model

    @property
    def sources(self) -> list[str]:
        return [source for source, _ in self.pairs]

    @property
    def references(self) -> list[str]:
        return [target for _, target in self.pairs]

    def calls(self, batch: int) -> list[list[str]]:
        """Return the sources in groups of `batch`."""
        return [self.sources[start : start + batch] for start in range(0, len(self.pairs), batch)]


def read_examples(path: str, sentences: int, tokenizer: Tokenizer, max_source_tokens: int) -> Examples:
    """Read up to `sentences` pairs from a file of `source<TAB>target` lines, or from `SOURCE::TARGET`, two files."""
    pairs = read_pairs([path])
    encodings = tokenizer.encode_batch([source for source, _ in pairs])
    fitting = [pair for pair, encoding in zip(pairs, encodings, strict=True) if len(encoding.ids) <= max_source_tokens]
    random.Random(1).shuffle(fitting)
    return Examples(Path(path.partition("::")[0]).name, fitting[:sentences], len(pairs) - len(fitting))


@dataclass(frozen=True)
class Case:
    """Combination of options that is measured."""

    examples: Examples
    precision: str
    decoding: Decoding
    batch: int  # sentences of a call


@dataclass(frozen=True)
class Measured:
    """Translations and durations of a candidate."""

    candidate: Candidate
    answers: Sequence[Answer]
    seconds: tuple[float, ...]  # of each round

    @property
    def texts(self) -> list[str]:
        return [answer.text for answer in self.answers]

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)


def measure(candidates: Sequence[Candidate], case: Case, rounds: int) -> list[Measured]:
    """Translate everything once untimed, then in timed rounds, each begun by another candidate.

    Raises:
        click.ClickException: A translation does not have the exact length.
    """
    calls = case.examples.calls(case.batch)
    few = calls[: max(1, TUNING_SENTENCES // case.batch)]
    answers, seconds = [], [[0.0] * rounds for _ in candidates]
    for candidate in candidates:
        candidate.tune(few, case.decoding)
        answers.append([answer for call in calls for answer in candidate.translate(call, case.decoding)])
        _check_length(candidate, answers[-1], case.decoding)
    for turn in range(rounds):
        for offset in range(len(candidates)):
            index = (turn + offset) % len(candidates)
            time.sleep(SETTLE_SECONDS)
            seconds[index][turn] = candidates[index].seconds(calls, case.decoding)
    return [Measured(c, a, tuple(s)) for c, a, s in zip(candidates, answers, seconds, strict=True)]


def reference_texts(candidate: Candidate, sets: Sequence[Examples], decodings: Sequence[Decoding]) -> Texts:
    """Translate all sets with a candidate in fp32, for comparison with other precisions."""
    return {
        (candidate.family, examples.name, decoding.beam): [
            answer.text for call in examples.calls(REFERENCE_BATCH) for answer in candidate.translate(call, decoding)
        ]
        for examples in sets
        for decoding in decodings
    }


def _check_length(candidate: Candidate, answers: Sequence[Answer], decoding: Decoding) -> None:
    others = [answer.tokens for answer in answers if answer.tokens != decoding.limit] if decoding.exact else []
    if others:
        raise click.ClickException(
            f"{candidate.name}: {len(others)} of {len(answers)} translations do not have {decoding.limit} tokens, "
            f"the first has {others[0]}; use a model that never ends a sentence (base.py translation)"
        )
