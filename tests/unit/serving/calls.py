"""Calls for tests of schedulers, lanes and engines."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.decoding.lane import Lane
from triptych_serving.scheduling.request import Call, Item, Row

PATIENCE_SECONDS = 60.0  # for a busy machine


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test, with its fixtures, in a new event loop."""

    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


class Recorder:
    """A listener that stores its callbacks."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ends = 0
        self.ended = threading.Event()

    def on_token(self, row: Row) -> None:
        self.tokens.append(len(row.tokens))

    def on_end(self) -> None:
        self.ends += 1
        self.ended.set()


class RecordedCall(Call[Any]):
    """A call with a Recorder; its rows know it, as if a queue had accepted them."""

    listener: Recorder

    def __init__(self, rows: Sequence[Any], deadline: float | None = None, streams: bool = False) -> None:
        super().__init__(rows, Recorder(), deadline, streams)
        for row in rows:
            row.call = self

    def wait(self) -> None:
        """Wait until the call is over."""
        assert self.listener.ended.wait(PATIENCE_SECONDS), "the listener was not told of the end"


def make_call(
    rows: int = 1, source: Sequence[int] = (5, 6, 2), max_tokens: int = 10, deadline: float | None = None, streams: bool = False
) -> RecordedCall:
    """Make a call of equal rows."""
    return RecordedCall([Row(source, max_tokens) for _ in range(rows)], deadline, streams)


def call_of(*rows: Row) -> RecordedCall:
    """Make a call of these rows."""
    return RecordedCall(rows)


def item_call(*sizes: int, deadline: float | None = None, payload: Any = None) -> RecordedCall:
    """Make a call for a one-shot engine with an item of each size."""
    return RecordedCall([Item(payload, size) for size in sizes], deadline)


def rows_of(*calls: Call[Row]) -> list[Row]:
    """Return every row of the calls."""
    return [row for call in calls for row in call.rows]


def row_of(source: Sequence[int], max_tokens: int, search: SearchParams = GREEDY, prefix: tuple[int, ...] = ()) -> Row:
    """Make a row with a call of its own, for a lane."""
    return rows_of(call_of(Row(source, max_tokens, search, prefix)))[0]


def decode_rows(lane: Lane, rows: Sequence[Row]) -> list[Row]:
    """Decode rows to the end; each joins as soon as there is room for it."""
    waiting = list(rows)[::-1]
    while waiting or lane.rows:
        while waiting and waiting[-1].search.slots <= lane.free:
            lane.join([waiting.pop()])
        lane.step()
    return list(rows)


def hold_calls(
    patch: pytest.MonkeyPatch, owner: Any, name: str, which: Callable[..., bool] = lambda *_: True
) -> Iterator[threading.Event]:
    """Hold calls of `owner.name` whose arguments `which` accepts until the yielded event is set, at the latest at the end."""
    call, released = getattr(owner, name), threading.Event()

    def hold(*arguments: Any) -> Any:
        assert not which(*arguments) or released.wait(PATIENCE_SECONDS)
        return call(*arguments)

    patch.setattr(owner, name, hold)
    yield released
    released.set()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.001)


@contextmanager
def watched(check: Callable[[], bool]) -> Iterator[None]:
    """Check something from another thread all the time, with frequent thread switches; it must always hold."""
    faults: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                if not check():
                    faults.append("the check failed")
            except Exception as error:
                faults.append(repr(error))

    usual, thread = sys.getswitchinterval(), threading.Thread(target=watch)
    thread.start()
    try:
        sys.setswitchinterval(1e-6)
        yield
    finally:
        sys.setswitchinterval(usual)
        done.set()
        thread.join()
    assert not faults, faults[0]
