"""Translating as generators: they yield what must be asked and are sent the answers, so that nobody here knows who answers."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation

Result = TypeVar("Result")
SentenceResult = SentenceTranslation | Refusal
Steps = Generator[Sequence[SentenceRequest], Sequence[SentenceResult], Result]  # one reply for each ask


def together(every: Sequence[Steps[Result]]) -> Steps[list[Result]]:
    """Side by side: what all of them ask next is asked at once. Results in order."""
    results: dict[int, Result] = {}
    asks: dict[int, Sequence[SentenceRequest]] = {}
    for index, steps in enumerate(every):
        _advance(index, steps, None, asks, results)
    while asks:
        running = list(asks.items())
        replies = yield [ask for _, own in running for ask in own]
        start = 0
        for index, own in running:
            _advance(index, every[index], replies[start : start + len(own)], asks, results)
            start += len(own)
    return [results[index] for index in range(len(every))]


def _advance(
    index: int,
    steps: Steps[Result],
    replies: Sequence[SentenceResult] | None,
    asks: dict[int, Sequence[SentenceRequest]],
    results: dict[int, Result],
) -> None:
    try:
        asks[index] = next(steps) if replies is None else steps.send(replies)
    except StopIteration as end:
        asks.pop(index, None)
        results[index] = end.value
