"""One request in an engine, as the event loop sees it."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from triptych_serving.rpc.call_context import Context, Use
from triptych_serving.rpc.mailbox import mailbox
from triptych_serving.scheduling.engine import Engine
from triptych_serving.scheduling.request import Call, Listener, Measured


class Timed(Measured, Protocol):
    """A row that knows when it ran; clock seconds."""

    started: float
    ended: float


RowT = TypeVar("RowT", bound=Timed)
Answer = TypeVar("Answer")


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
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mailbox = mailbox()

    def on_end(self) -> None:
        self._mailbox.post(self._end)

    async def end(self) -> None:
        """Wait for it. For one waiter, who is told once."""
        await self._ended

    def _end(self) -> None:
        if not self._ended.done():  # nobody waits any more
            self._ended.set_result(None)


class Job(Generic[RowT]):
    """Rows of one request; made when they are prepared.

        with job:                    # raises what the engine refuses them with
            await listener.end()     # whatever still runs for them when the block ends shall stop
            job.raise_error()

    Args:
        engine: whose rows they are.
        call: with an EndListener.
        arrival: of the request.
        use: of the model; told where the time went.
    """

    def __init__(self, engine: Engine[RowT], call: Call[RowT], arrival: Arrival, use: Use) -> None:
        self.call = call
        self.use = use
        self._engine = engine
        self._arrival = arrival
        use.rows, use.tokens_in = len(call.rows), call.tokens
        use.stages["preprocess"] = (arrival.arrived, time.monotonic())

    def __enter__(self) -> None:
        self._engine.submit(self.call)

    def __exit__(self, *_: object) -> None:
        try:
            if not self.call.over:
                self._engine.cancel(self.call)
        finally:
            self._note()

    def raise_error(self) -> None:
        """What the call failed with, if it did."""
        if self.call.error is not None:
            raise self.call.error

    async def postprocessed(self, answer: Awaitable[Answer]) -> Answer:
        """Tensors become an answer again."""
        began = time.monotonic()
        try:
            return await answer
        finally:
            self.use.stages["postprocess"] = (began, time.monotonic())

    def _note(self) -> None:
        """Where the engine's time went, as far as it came to it."""
        rows: Sequence[RowT] = self.call.rows
        if all(row.started for row in rows):
            self.use.stages["queue"] = (self.call.arrived, max(row.started for row in rows))
        if all(row.ended for row in rows):
            self._note_work(min(row.started for row in rows), max(row.ended for row in rows))

    def _note_work(self, started: float, ended: float) -> None:
        self.use.stages["inference"] = (started, ended)
