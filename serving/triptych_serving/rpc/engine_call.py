"""One request in an engine, as the event loop sees it."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from triptych_serving.encoding.options import Work
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.rpc.event_loop import mailbox
from triptych_serving.scheduling.engine import Engine
from triptych_serving.scheduling.request import Call, Item, Listener, RowT

Results = TypeVar("Results")


@dataclass(frozen=True)
class Arrival:
    """Arrival and deadline of a request, in clock seconds; the deadline is None where the caller set none."""

    arrived: float
    deadline: float | None

    @classmethod
    def now(cls, context: GrpcContext) -> "Arrival":
        """Return the present time and the caller's deadline."""
        now, left = time.monotonic(), context.time_remaining()
        return cls(now, None if left is None else now + left)


class EndListener(Listener):
    """Report the end of an engine's call to the event loop. For one waiter."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mailbox = mailbox()

    def on_end(self) -> None:
        self._mailbox.post(self._end)

    async def end(self) -> None:
        """Wait for the end."""
        await self._ended

    def _end(self) -> None:
        if not self._ended.done():  # the waiter may have been cancelled
            self._ended.set_result(None)


class EngineCall(Generic[RowT]):
    """The prepared rows of one request, submitted to an engine while the block runs.

        with engine_call:               # raises the engine's rejection
            await listener.end()        # rows that still run when the block ends are cancelled
            engine_call.raise_error()

    Args:
        call: with an EndListener.
        use: of the model; receives the stages' times.
    """

    def __init__(self, engine: Engine[RowT], call: Call[RowT], arrival: Arrival, use: ModelUse) -> None:
        self.call = call
        self.use = use
        self._engine = engine
        use.rows, use.tokens_in = len(call.rows), call.size
        use.stages["preprocess"] = (arrival.arrived, time.monotonic())

    def __enter__(self) -> None:
        self._engine.submit(self.call)

    def __exit__(self, *_: object) -> None:
        try:
            if not self.call.over:
                self._engine.cancel(self.call)
        finally:
            self._record_stages()

    def raise_error(self) -> None:
        """Raise the call's error, if it has one."""
        if self.call.error is not None:
            raise self.call.error

    async def postprocessed(self, results: Awaitable[Results]) -> Results:
        """Await the conversion of tensors to results, and record its time."""
        began = time.monotonic()
        try:
            return await results
        finally:
            self.use.stages["postprocess"] = (began, time.monotonic())

    @staticmethod
    async def run(engine: Engine[Item], work: Work[Any], arrival: Arrival, use: ModelUse) -> "EngineCall[Item]":
        """Run prepared work to its end. Raises ServingError: the engine rejected it, or it failed."""
        listener = EndListener()
        engine_call = EngineCall(engine, Call(work.items, listener, arrival.deadline, field=work.field), arrival, use)
        with engine_call:
            await listener.end()
            engine_call.raise_error()
        return engine_call

    def _record_stages(self) -> None:
        rows: Sequence[RowT] = self.call.rows
        started, ended = [row.started for row in rows], [row.ended for row in rows]
        if all(started):
            self.use.stages["queue"] = (self.call.arrived, max(started))
        if all(ended):
            self._record_work(min(started), max(ended))

    def _record_work(self, started: float, ended: float) -> None:
        self.use.stages["inference"] = (started, ended)
