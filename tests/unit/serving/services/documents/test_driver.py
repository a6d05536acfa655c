"""Segments on their way through the engine."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

import pytest

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit
from triptych_documents.unit import Unit
from triptych_serving.errors import UnavailableError
from triptych_serving.services.documents.driver import BATCH_ROWS, STEP_UNITS, Drive

UNITS = [Unit((f"text {index}",), f"line {index}") for index in range(200)]
ROWS = 3 * BATCH_ROWS


class EchoWork:
    """Asks for each unit's text, and where `twice` is set once more for its alignment."""

    def __init__(self, twice: bool = False) -> None:
        self._twice = twice
        self._units: dict[str, tuple[Hashable, Unit]] = {}
        self._done: list[TranslatedUnit] = []

    @property
    def waiting(self) -> int:
        return len(self._units)

    def add(self, key: Hashable, unit: Unit) -> list[SentenceRequest]:
        self._units[unit.text] = key, unit
        return [SentenceRequest(unit.text)]

    def answer(self, ask: SentenceRequest, answer: SentenceTranslation | Refusal) -> list[SentenceRequest]:
        if self._twice and not ask.aligned:
            return [SentenceRequest(ask.text, aligned=True)]
        key, unit = self._units.pop(ask.text)
        text = answer.text if isinstance(answer, SentenceTranslation) else ask.text
        self._done.append(TranslatedUnit(key, unit, (text,), (), ()))
        return []

    def done(self) -> Sequence[TranslatedUnit]:
        done, self._done = self._done, []
        return done


class Engine:
    """Counts what is under way."""

    def __init__(self) -> None:
        self.batches: list[Sequence[SentenceRequest]] = []
        self.rows = self.most = self.cancelled = 0

    async def __call__(self, asks: Sequence[SentenceRequest]) -> Sequence[SentenceTranslation | Refusal]:
        self.batches.append(asks)
        self.rows += len(asks)
        self.most = max(self.most, self.rows)
        try:
            await asyncio.sleep(0)
            return [SentenceTranslation(ask.text.upper()) for ask in asks]
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.rows -= len(asks)


async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def drive(
    work: Any,
    ask: Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceTranslation | Refusal]]],
    units: Sequence[Unit],
) -> list[TranslatedUnit]:
    async def main() -> list[TranslatedUnit]:
        steps = Drive(work, units, ask, inline, ROWS).steps()
        return [done async for some in steps for done in some]

    return asyncio.run(main())


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("count", [0, 1, BATCH_ROWS, len(UNITS)])
def test_all_segments_are_done_once(twice: bool, count: int) -> None:
    done = drive(EchoWork(twice), Engine(), UNITS[:count])
    assert sorted(one.key for one in done) == list(range(count))  # type: ignore[type-var]
    assert all(one.pieces == (one.unit.text.upper(),) for one in done)


def test_so_many_are_under_way_and_no_more() -> None:
    engine = Engine()
    drive(EchoWork(), engine, UNITS)
    assert engine.most <= ROWS
    assert max(map(len, engine.batches)) == BATCH_ROWS


def test_other_documents_come_in_between() -> None:
    """Also where segments ask for nothing."""

    class Wordless(EchoWork):
        def add(self, key: Hashable, unit: Unit) -> list[SentenceRequest]:
            self._done.append(TranslatedUnit(key, unit, unit.pieces, (), ()))
            return []

    async def main() -> list[int]:
        steps = Drive(Wordless(), UNITS * 10, Engine(), inline, ROWS).steps()  # type: ignore[arg-type]
        return [len(done) async for done in steps]

    assert asyncio.run(main()) == [STEP_UNITS] * (10 * len(UNITS) // STEP_UNITS)


def test_what_is_aligned_goes_apart() -> None:
    engine = Engine()
    drive(EchoWork(twice=True), engine, UNITS)
    assert all(len({ask.aligned for ask in batch}) == 1 for batch in engine.batches)


def test_an_error_ends_it_and_cancels_what_is_under_way() -> None:
    engine = Engine()

    async def ask(asks: Sequence[SentenceRequest]) -> Sequence[SentenceTranslation | Refusal]:
        if asks[0].text == "text 0":
            raise UnavailableError("gone")
        await asyncio.sleep(0)
        return await asyncio.shield(engine(asks))

    with pytest.raises(UnavailableError, match="gone"):
        drive(EchoWork(), ask, UNITS)
    assert len(engine.batches) <= 2


def test_several_errors_at_once_are_one(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(asks: Sequence[SentenceRequest]) -> Sequence[SentenceTranslation | Refusal]:
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError, match="gone"):
        drive(EchoWork(), ask, UNITS)
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_who_stops_listening_cancels_what_is_under_way() -> None:
    engine = Engine()
    waiting = asyncio.Event()

    async def ask(asks: Sequence[SentenceRequest]) -> Sequence[SentenceTranslation | Refusal]:
        answers = await engine(asks)
        if asks[0].text != "text 0":
            engine.rows += 1
            try:
                await waiting.wait()
            finally:
                engine.rows -= 1
        return answers

    async def main() -> None:
        steps = Drive(EchoWork(), UNITS, ask, inline, ROWS).steps()
        while not await anext(steps):
            pass
        assert engine.rows > 0
        await steps.aclose()
        assert engine.rows == 0

    asyncio.run(main())


def test_work_that_asks_for_nothing_is_a_fault() -> None:
    class Forgetful(EchoWork):
        def add(self, key: Hashable, unit: Unit) -> list[SentenceRequest]:
            super().add(key, unit)
            return []

    with pytest.raises(AssertionError, match="nothing is asked for it"):
        drive(Forgetful(), Engine(), UNITS)
