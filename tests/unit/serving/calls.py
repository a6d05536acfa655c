"""Calls without a caller: what a test hands to a scheduler, a lane or an engine."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from triptych_serving.scheduling.decode_scheduler import Job
from triptych_serving.scheduling.request import Call, Item, Row

PATIENCE_SECONDS = 120.0  # for a machine that has other things to do


class Recorder:
    """A listener that keeps what it was told."""

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
    """A call whose listener is a Recorder."""

    listener: Recorder

    def wait(self) -> None:
        """Until it is over."""
        assert self.listener.ended.wait(PATIENCE_SECONDS), "nobody told the listener of the end"


def make_call(
    rows: int = 1, source: Sequence[int] = (5, 6, 2), max_tokens: int = 10, deadline: float | None = None, streams: bool = False
) -> RecordedCall:
    """A call of like rows."""
    return RecordedCall([Row(source, max_tokens) for _ in range(rows)], Recorder(), deadline, streams)


def call_of(*rows: Row) -> RecordedCall:
    """A call of these rows."""
    return RecordedCall(rows, Recorder())


def item_call(*sizes: int, deadline: float | None = None, payload: Any = None) -> RecordedCall:
    """A call for a one-shot engine, an item of each size."""
    return RecordedCall([Item(payload, size) for size in sizes], Recorder(), deadline)


def jobs_of(*calls: Call[Row]) -> list[Job]:
    """Every row of the calls, as a lane takes them."""
    return [Job(row, call) for call in calls for row in call.rows]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)
