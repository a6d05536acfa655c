"""One request in an engine, as the event loop sees it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from triptych_serving.row import Call, Listener, Measured
from triptych_serving.servicers.status import Context
from triptych_serving.waiting import Engine


class Timed(Measured, Protocol):
    """A row that knows when it ran; clock seconds."""

    started: float
    ended: float


RowT = TypeVar("RowT", bound=Timed)


@dataclass(frozen=True)
class Arrival:
    """When a request came, and when its answer is worthless; clock seconds."""

    arrived: float
    deadline: float | None

    @classmethod
    def of(cls, context: Context) -> "Arrival":
        """Now, with the caller's deadline."""
        now, left = time.monotonic(), context.time_remaining()
        return cls(now, None if left is None else now + left)


class EndListener(Listener):
    """Tells the event loop of a call's end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_end(self) -> None:
        self._post(self._end)

    def _end(self) -> None:
        self.ended.set()

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the server is gone, and with it whoever asked
            return


class Job(Generic[RowT]):
    """Rows of one request; made when they are prepared.

    Args:
        engine: whose rows they are.
        call: with an EndListener.
        arrival: of the request.
    """

    def __init__(self, engine: Engine[RowT], call: Call[RowT], arrival: Arrival) -> None:
        self.call = call
        self._engine = engine
        self._arrival = arrival
        self._prepared = time.monotonic()
        self.postprocess = 0.0

    def submit(self) -> None:
        """Queue the rows.

        Raises:
            ServingError: the engine refuses them.
        """
        self._engine.submit(self.call)

    def abandon(self) -> None:
        """The handler is leaving: whatever still runs for it shall stop."""
        if not self.call.over:
            self._engine.cancel(self.call)

    def raise_error(self) -> None:
        """What the call failed with, if it did."""
        if self.call.error is not None:
            raise self.call.error

    def seconds(self) -> dict[str, float]:
        """Where the time went, once all rows have ended."""
        rows: Sequence[RowT] = self.call.rows
        started = [row.started for row in rows]
        return {
            "queue": max(started) - self.call.arrived,
            "preprocess": self._prepared - self._arrival.arrived,
            "inference": max(row.ended for row in rows) - min(started),
            "postprocess": self.postprocess,
        }
