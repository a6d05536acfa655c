"""Translates the units of one document through the engine, a few batches at a time so that other callers get their turn."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from triptych_documents.driver import DocumentDriver
from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Unit

BATCH_ROWS = 32  # requests per call of the engine, which takes one row of each call per turn
STEP_UNITS = 500  # units per step of a document thread, which other documents share

Results = list[tuple[SentenceRequest, SentenceResult]]


class EngineDriver:
    """Drives the units of one document through the engine.

    Args:
        translator: used in the threads of `run` only.
        units: of the document.
        translate: translates requests that are all aligned or all not.
        run: runs a function in a document thread.
        rows: maximum number of requests in flight.
    """

    def __init__(
        self,
        translator: UnitTranslator,
        units: Sequence[Unit],
        translate: Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceResult]]],
        run: Callable[..., Awaitable[Any]],
        rows: int,
    ) -> None:
        self._driver = DocumentDriver(translator, enumerate(units), window=rows, step_units=STEP_UNITS)
        self._translate, self._run, self._most_batches = translate, run, max(1, rows // BATCH_ROWS)
        self._batches: set[asyncio.Task[Results]] = set()

    async def steps(self) -> AsyncGenerator[Sequence[TranslatedUnit]]:
        """Yield units as they are finished; often none.

        Raises:
            ServingError: the document cannot be translated.
        """
        results: Results = []
        try:
            while True:
                done = await self._run(self._driver.advance, results)
                while len(self._batches) < self._most_batches and (batch := self._driver.take(BATCH_ROWS)):
                    self._batches.add(asyncio.create_task(self._translated(batch)))
                yield done  # while the engine works
                if self._driver.is_finished:
                    break
                results = await self._results(0.0 if self._driver.can_read else None)
        finally:  # cancel all batches and wait until their rows have left the engine
            for task in self._batches:
                task.cancel()
            await asyncio.gather(*self._batches, return_exceptions=True)

    async def _translated(self, batch: Sequence[SentenceRequest]) -> Results:
        return list(zip(batch, await self._translate(batch), strict=True))

    async def _results(self, timeout: float | None) -> Results:
        if not self._batches:
            return []
        done, self._batches = await asyncio.wait(self._batches, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for error in [batch.exception() for batch in done]:  # look at all of them, or asyncio logs the others
            if error is not None:
                raise error
        return [result for batch in done for result in batch.result()]
