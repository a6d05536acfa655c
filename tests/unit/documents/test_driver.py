"""The document driver: order, bounds and completeness of the requests that it issues."""

import random
from collections.abc import Hashable

import pytest

from triptych_documents.driver import DocumentDriver
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Code, Role, Unit

from .translators import swapped, swapping

TEXTS = [f"Sentence number {'x' * number}. And one more {'y' * number}." for number in range(3, 43)]


def units(*texts: str) -> list[tuple[Hashable, Unit]]:
    return [(index, Unit((text,), "here")) for index, text in enumerate(texts)]


def driver(found: list[tuple[Hashable, Unit]], window: int, **options: float) -> DocumentDriver:
    return DocumentDriver(UnitTranslator(TranslationRules(source_language="en")), found, window=window, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("window", "limit", "refill"), [(1, 1, 0.0), (8, 3, 0.0), (8, None, 0.5), (1_000, 32, 0.25)])
def test_all_units_come_out_whatever_the_order_of_results(window: int, limit: int | None, refill: float) -> None:
    chance, drive = random.Random(5), driver(units(*TEXTS), window, refill=refill)
    done, flying, results = {}, list[SentenceRequest](), list[tuple[SentenceRequest, SentenceResult]]()
    while not drive.is_finished:
        for unit in drive.advance(results):
            done[unit.key] = unit.pieces
        flying += drive.take(limit)
        assert len(flying) <= window + 1  # the last unit read has two sentences
        chance.shuffle(flying)
        results = [(request, swapping(request)) for request in (flying.pop() for _ in range(min(2, len(flying))))]
    assert done == {index: (swapped(text),) for index, text in enumerate(TEXTS)}
    assert not drive.take()


def test_units_are_read_lazily() -> None:
    read = []

    def reading() -> object:
        for key, unit in units(*TEXTS):
            read.append(key)
            yield key, unit

    drive = driver(reading(), 4)  # type: ignore[arg-type]
    drive.advance()
    assert len(read) == 2
    assert not drive.can_read
    [first, *_] = drive.take()
    drive.advance([(first, swapping(first))])
    assert len(read) == 3
    quarter = driver(reading(), 8, refill=0.5)  # type: ignore[arg-type]
    quarter.advance()
    [first, *_] = quarter.take()
    read.clear()
    quarter.advance([(first, swapping(first))])
    assert not read  # less than half of the window is free


def test_a_call_reads_a_bounded_number_of_units() -> None:
    drive = driver(units(*(f"{number}" for number in range(5))), 100, step_units=2)  # numbers need no translation
    assert [len(drive.advance()) for _ in range(4)] == [2, 2, 1, 0]
    assert drive.is_finished


def test_limited_batches_are_all_aligned_or_all_not() -> None:
    bold = Code("<b>", Role.OPEN, 0), "big", Code("</b>", Role.CLOSE, 0)
    found: list[tuple[Hashable, Unit]] = [("plain", Unit(("A house",), "")), ("tags", Unit(("A ", *bold, " tree"), ""))]
    drive = driver(found, 10)
    drive.advance()
    batches = [drive.take(5), drive.take(5)]
    assert sorted(len({request.aligned for request in batch}) for batch in batches) == [1, 1]
