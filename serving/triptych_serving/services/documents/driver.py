"""Segments on their way through the engine: a few batches at a time, so that nobody else waits for a whole document."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Unit

BATCH_ROWS = 32  # of one call of the engine; in each of its turns a call gives one row
STEP_UNITS = 500  # that are looked at in one go, whatever they ask for: other documents want the thread too

Answered = tuple[SentenceRequest, SentenceTranslation | Refusal]
Batch = asyncio.Task[list[Answered]]


class Drive:
    """All segments of one document.

    Args:
        work: is used in `run`'s thread alone.
        units: of the document.
        ask: asks the engine, all of one kind.
        run: runs what takes its time.
        rows: asks that are under way at a time.
    """

    def __init__(
        self,
        work: UnitTranslator,
        units: Sequence[Unit],
        ask: Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceTranslation | Refusal]]],
        run: Callable[..., Awaitable[Any]],
        rows: int,
    ) -> None:
        self._work, self._units, self._ask, self._run, self._rows = work, units, ask, run, rows
        self._added = 0
        self._plain: deque[SentenceRequest] = deque()  # these and those do not go together into one call
        self._aligned: deque[SentenceRequest] = deque()
        self._batches: set[Batch] = set()

    async def steps(self) -> AsyncGenerator[Sequence[TranslatedUnit]]:
        """The segments that have become done, whenever something was answered; often none.

        Raises:
            ServingError: whatever kept the document from being translated.
        """
        answered: list[Answered] = []
        try:
            while True:
                done = await self._run(self._advance, answered)
                self._begin()
                yield done
                if not self._batches and not self._has_more:
                    break
                answered = await self._answers(None if self._is_full or not self._has_more else 0.0)
        finally:
            await _end(self._batches)
        assert not self._work.waiting, "a segment waits, and nothing is asked for it"

    def _advance(self, answered: Sequence[Answered]) -> Sequence[TranslatedUnit]:
        for ask, answer in answered:
            self._queue(self._work.answer(ask, answer))
        last = self._added + STEP_UNITS
        while self._has_more and not self._is_full and self._added < last:
            self._queue(self._work.add(self._added, self._units[self._added]))
            self._added += 1
        return self._work.done()

    @property
    def _has_more(self) -> bool:
        return self._added < len(self._units)

    @property
    def _is_full(self) -> bool:
        return len(self._plain) + len(self._aligned) + BATCH_ROWS * len(self._batches) >= self._rows

    def _queue(self, asks: Sequence[SentenceRequest]) -> None:
        for ask in asks:
            (self._aligned if ask.aligned else self._plain).append(ask)

    def _begin(self) -> None:
        while len(self._batches) < max(1, self._rows // BATCH_ROWS) and (self._plain or self._aligned):
            queue = max(self._plain, self._aligned, key=len)
            batch = [queue.popleft() for _ in range(min(BATCH_ROWS, len(queue)))]
            self._batches.add(asyncio.create_task(self._answer(batch)))

    async def _answer(self, batch: Sequence[SentenceRequest]) -> list[Answered]:
        return list(zip(batch, await self._ask(batch), strict=True))

    async def _answers(self, timeout: float | None) -> list[Answered]:
        if not self._batches:
            return []
        finished, self._batches = await asyncio.wait(self._batches, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for error in [batch.exception() for batch in finished]:  # all are looked at, or asyncio would log the others
            if error is not None:
                raise error
        return [answered for batch in finished for answered in batch.result()]


async def _end(batches: set[Batch]) -> None:
    """Cancel them, and wait until their rows have left the engine."""
    for batch in batches:
        batch.cancel()
    await asyncio.gather(*batches, return_exceptions=True)
