"""Requests to a decode engine, whole or streamed, for translation and text generation."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from triptych_serving.decoding.engine import DecodeEngine
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.text import PreparedGeneration
from triptych_serving.models.translation.preprocess import PreparedRequest
from triptych_serving.models.translation.translator import TranslationModel
from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.cached_calls import RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse, ModelUseScope
from triptych_serving.rpc.engine_call import Arrival, EndListener, EngineCall
from triptych_serving.scheduling.request import Call, Row, TokenLogProbability
from triptych_serving.services.model_calls import ModelCalls
from triptych_text.steps import Steps


@dataclass(frozen=True)
class TextPiece:
    """The next piece of one choice of a text's results, with the log-probabilities since the last one."""

    index: int
    text: str
    choice: int = 0
    log_probabilities: tuple[TokenLogProbability, ...] = ()
    model: Any = None  # knows the texts of the tokens


@dataclass(frozen=True)
class FinishedText:
    """The complete result of one text, after its last piece, as the query's `convert` made it."""

    index: int
    result: Any


Prepared = PreparedRequest | PreparedGeneration
DecodingModel = TranslationModel[Any] | Generator
DecodeEvent = TextPiece | FinishedText | ModelUse


class DecodeQuery(Protocol):
    """A request to decode texts with one model."""

    @property
    def field(self) -> str:
        """The field with the inputs, for errors."""

    @property
    def work(self) -> int:
        """Roughly the characters to process."""

    def find(self, registry: Registry) -> Any:
        """Find the model."""

    def content(self, model: Any) -> RequestContent | None:
        """Return all that the results depend on, except the model; None if they vary."""

    def prepare(self, model: Any, deadline: float | None) -> Steps[Any]:
        """Check and tokenize in small steps."""

    def outputs(self, model: Any, prepared: Any) -> tuple[int, Steps[list[Any]]]:
        """Return roughly the characters of rows, which all have ended, and the steps that convert them."""


class DecodeCalls(ModelCalls):
    """Decode texts, for every protocol."""

    async def stream(self, query: DecodeQuery, context: GrpcContext) -> AsyncGenerator[DecodeEvent]:
        """Yield pieces as they are decoded, each text's result after its last piece, and finally the model's use.

        Raises:
            ServingError: the request cannot be served.
        """
        arrival = Arrival.now(context)
        model: DecodingModel = query.find(self._registry())
        with ModelUseScope(model) as use:
            prepared = await self._prepare(query, model, arrival.deadline)
            call = DecodeCall(model.engine, prepared.rows, arrival, use, query.field, streams=True)
            with call:
                async for event in self._events(call, query, model, prepared, arrival.deadline):
                    yield event
                await call.listener.end()  # the times of the last rows follow their text
            yield use

    async def run(self, query: DecodeQuery, context: GrpcContext) -> tuple[list[Any], ModelUse]:
        """Return the results of all texts, converted and in order; from the response cache if it has them.

        Raises:
            ServingError: the request cannot be served.
        """
        arrival = Arrival.now(context)
        model: DecodingModel = query.find(self._registry())
        compute = partial(self._compute, query, model, arrival)
        return await self._results(model, partial(query.content, model), arrival.deadline, compute)

    async def _compute(self, query: DecodeQuery, model: DecodingModel, arrival: Arrival, use: ModelUse) -> list[Any]:
        prepared = await self._prepare(query, model, arrival.deadline)
        call = DecodeCall(model.engine, prepared.rows, arrival, use, query.field)
        with call:
            await call.listener.end()
            call.raise_error()
        return await call.postprocessed(self._outputs(query, model, prepared, arrival.deadline))

    async def _prepare(self, query: DecodeQuery, model: DecodingModel, deadline: float | None) -> Prepared:
        """Check and tokenize the texts, and load the graphs that the search needs."""
        prepared: Prepared = await self._offload.run_steps(query.work, deadline, query.prepare(model, deadline))
        if not model.lanes.is_open_for(prepared.rows):
            await self._offload.run_in_thread(model.lanes.open_for, prepared.rows)
        return prepared

    async def _events(
        self, call: "DecodeCall", query: DecodeQuery, model: DecodingModel, prepared: Any, deadline: float | None
    ) -> AsyncIterator[TextPiece | FinishedText]:
        """Yield the pieces of all texts, and each text's result."""
        growing = model.growing(prepared)
        owners = {id(row): each for each in growing for row in each.rows}
        left = Counter(each.index for each in growing)
        while left:
            for row in await call.listener.changed_rows():
                call.raise_error()
                part = owners[id(row)]
                if part.is_done:
                    continue
                text, log_probabilities = part.advance(row), part.take_log_probabilities()
                if text or log_probabilities:
                    yield TextPiece(part.index, text, part.choice, tuple(log_probabilities), model)
                left[part.index] -= part.is_done
                if not left[part.index]:
                    del left[part.index]
                    [result] = await self._outputs(query, model, prepared.part(part.index), deadline)
                    yield FinishedText(part.index, result)
            call.raise_error()

    async def _outputs(self, query: DecodeQuery, model: DecodingModel, prepared: Prepared, deadline: float | None) -> list[Any]:
        """Convert rows, which all have ended."""
        size, steps = query.outputs(model, prepared)
        return await self._offload.run_steps(size, deadline, steps)


class DecodeCall(EngineCall[Row]):
    """One request in a decode engine.

    Args:
        use: of the model; receives the stages' times.
        field: the request's field that the rows come from, for error messages.
        streams: listen to every token.
    """

    def __init__(
        self,
        engine: DecodeEngine,
        rows: Sequence[Row],
        arrival: Arrival,
        use: ModelUse,
        field: str,
        streams: bool = False,
    ) -> None:
        self.listener = TokenListener(rows)
        super().__init__(engine, Call(rows, self.listener, arrival.deadline, streams, field), arrival, use)

    def _record_stages(self) -> None:
        super()._record_stages()
        rows = self.call.rows
        self.use.tokens_out = sum([len(row.shown(row.tokens)) for row in rows])
        self.use.first_token = min([row.first_token for row in rows if row.first_token], default=0.0)

    def _record_work(self, started: float, ended: float) -> None:
        first = min(row.first_token for row in self.call.rows)
        self.use.stages["prefill"] = (started, first)
        self.use.stages["decode"] = (first, ended)


class TokenListener(EndListener):
    """Collect the rows with new tokens for the event loop. The engine never waits for a slow reader, who gets more at once."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = rows
        self._has_changes = asyncio.Event()
        self._changed: dict[int, Row] = {}

    def on_token(self, row: Row) -> None:
        self._mailbox.post(partial(self._add, row))

    async def changed_rows(self) -> list[Row]:
        """Wait for new tokens, and return the rows that have some since the last call."""
        await self._has_changes.wait()
        self._has_changes.clear()
        rows = list(self._changed.values())
        self._changed.clear()
        return rows

    def _add(self, row: Row) -> None:
        self._changed[id(row)] = row
        self._has_changes.set()

    def _end(self) -> None:
        self._changed.update({id(row): row for row in self._rows})
        self._has_changes.set()
        super()._end()
