"""Faults at random points of joins, steps and leaves, with the toy model's graphs: every call ends, and results stay right."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.decoding.slots import Slots
from triptych_serving.errors import CancelledError, EngineError, UnavailableError
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Row

from ....fixtures.toy import BUNDLE
from ..calls import call_of, decode_rows, row_of

SLOTS = 5
POINTS = [
    *((HostKVCache, name) for name in ("encode", "copy", "bind")),
    *((Slots, name) for name in ("encode", "vacate", "run")),
    *((lane, name) for lane in (GreedyLane, SearchLane) for name in ("join", "leave", "step", "reset")),
]
SEARCHES = (GREEDY, SearchParams(beam_size=3, num_hypotheses=2), SearchParams(beam_size=2, min_length=4))

Request = tuple[tuple[int, ...], int, SearchParams, tuple[int, ...]]


class Crash(BaseException):
    """Not caught as the failure of a batch."""


@contextmanager
def faults(numbers: set[int], error: type[BaseException], after: bool) -> Iterator[None]:
    """Make the calls of these numbers, of all functions in `POINTS` together, raise before or after their work."""
    count = 0

    def failing(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            fails = count in numbers
            if fails and not after:
                raise error("injected")
            result = method(*arguments)
            if fails:
                raise error("injected")
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in POINTS:
            patch.setattr(owner, name, failing(getattr(owner, name)))
        yield


@cache
def lanes() -> LaneFactory:
    factory = LaneFactory(open_bundle(BUNDLE), "fp32", SLOTS)
    factory.open(LaneKind.SEARCH)
    return factory


@cache
def alone(request: Request) -> list[tuple[int, ...]]:
    [row] = decode_rows(lanes().make(LaneKind.of(Row(*request))), [row_of(*request)])
    return found(row)


def found(row: Row) -> list[tuple[int, ...]]:
    return [hypothesis.tokens for hypothesis in row.hypotheses]


sources = st.lists(st.integers(3, 299), max_size=12).map(lambda ids: (*ids, 2))
prefixes = st.sampled_from([(), (), (7,), (9, 30, 8)])
requests = st.tuples(sources, st.integers(4, 9), st.sampled_from(SEARCHES), prefixes)


@settings(max_examples=16)
@given(
    st.lists(st.tuples(requests, st.booleans()), min_size=1, max_size=14),
    st.sets(st.integers(1, 80), min_size=1, max_size=4),
    st.sampled_from([RuntimeError, Crash]),
    st.booleans(),
)
def test_every_call_ends_and_later_rows_are_right(
    sent: list[tuple[Request, bool]], numbers: set[int], error: type[BaseException], after: bool
) -> None:
    logging.getLogger("triptych_serving").setLevel(logging.CRITICAL)
    for request, _ in sent:
        alone(request)
    engine = DecodeEngine(lanes().make, EngineOptions(slots=SLOTS))
    engine.start([LaneKind.SEARCH])
    calls = []
    try:
        with faults(numbers, error, after):
            for request, cancels in sent:
                call = call_of(Row(*request))
                try:
                    engine.submit(call)
                except UnavailableError:
                    assert engine._failure  # a worker failed, and failed again while it was rebuilt
                    break
                calls.append((call, request))
                if cancels:
                    engine.cancel(call)
            for call, _ in calls:
                call.wait()
        for call, request in calls:
            failed = isinstance(call.error, EngineError | CancelledError | UnavailableError)
            assert failed or (call.error is None and found(call.rows[0]) == alone(request))
        if not engine._failure:
            later = [((5, 6, 2), 12, search, prefix) for search in SEARCHES for prefix in ((), (7,), (9, 30, 8))]
            rows = [Row(*request) for request in later]
            call = call_of(*rows)
            with suppress(UnavailableError):
                engine.submit(call)
                call.wait()
        if not engine._failure:  # after a cancelled call, a worker may fail late
            assert call.error is None
            assert list(map(found, rows)) == list(map(alone, later))
            assert engine.count_rows() == (0, 0)
    finally:
        engine.close(drain=False)
        logging.getLogger("triptych_serving").setLevel(logging.NOTSET)
