"""Candidates take turns over the same calls."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import click
from candidate import Answer, Candidate, Decoding
from examples import Examples

SETTLE_SECONDS = 0.1  # threads of the candidate before may still spin
TUNING_SENTENCES = 64


@dataclass(frozen=True)
class Case:
    """What is measured at once."""

    examples: Examples
    precision: str
    decoding: Decoding
    batch: int  # sentences of a call


@dataclass(frozen=True)
class Measured:
    """What a candidate did."""

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
    """One pass untimed, which also gives the answers; then the rounds, each begun by another candidate.

    Raises:
        click.ClickException: a translation does not have the exact length that was asked for.
    """
    calls = case.examples.calls(case.batch)
    few = calls[: max(1, TUNING_SENTENCES // case.batch)]
    answers, seconds = [], [[0.0] * rounds for _ in candidates]
    for candidate in candidates:
        candidate.tune(few, case.decoding)
        answers.append([answer for call in calls for answer in candidate.translate(call, case.decoding)])
        _check_length(candidate, answers[-1], case.decoding)
    for turn in range(rounds):
        for place in range(len(candidates)):
            index = (turn + place) % len(candidates)
            seconds[index][turn] = _seconds(candidates[index], calls, case.decoding)
    return [Measured(c, a, tuple(s)) for c, a, s in zip(candidates, answers, seconds, strict=True)]


def _seconds(candidate: Candidate, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
    time.sleep(SETTLE_SECONDS)
    return candidate.seconds(calls, decoding)


def _check_length(candidate: Candidate, answers: Sequence[Answer], decoding: Decoding) -> None:
    others = [answer.tokens for answer in answers if answer.tokens != decoding.limit] if decoding.exact else []
    if others:
        raise click.ClickException(
            f"{candidate.name}: {len(others)} of {len(answers)} translations do not have {decoding.limit} tokens, "
            f"the first has {others[0]}; a model that never ends a sentence (base.py translation) is needed"
        )
