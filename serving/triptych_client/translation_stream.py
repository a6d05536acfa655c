"""Translations and generated texts that arrive piece by piece, blocking and for asyncio."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeVar

import grpc

from triptych_client.call import Attempts, Call
from triptych_client.generation import GENERATE_STREAM, Generation
from triptych_client.messages import served_from
from triptych_client.results import Translation
from triptych_client.status import broken_contract, error_of
from triptych_client.tasks import TRANSLATE_STREAM, UnaryTask

Result = TypeVar("Result")


class _Stream(Generic[Result]):
    """The state of one stream with a single text. Of several choices it reads the pieces of the first."""

    _task: ClassVar[UnaryTask[Any]]
    _what: ClassVar[str]  # the stream returns, in errors; also the field of its result
    _text_of: ClassVar[Any]  # returns the text of that field

    def __init__(self, channel: Any, request: Any, call: Call) -> None:
        self._channel, self._request, self._call = channel, request, call
        self._attempts: Attempts | None = None  # from the first piece on
        self._running: Any = None  # gRPC's call; None before one, and between two attempts
        self._closed = False
        self._ended = False
        self._started = False
        self._text = ""
        self._message: Any = None
        self._result: Result | None = None

    @property
    def request_id(self) -> str:
        """Value of the `x-request-id` that the request sends."""
        return self._call.request_id

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's end, or after that of the event loop
            self._stop()

    def _current(self) -> Any:
        """Return gRPC's call, which is started if there is none. Raises CallCancelledError: the stream was closed."""
        if self._closed:  # by another thread or task, between two attempts
            raise self._call.cancelled()
        self._attempts = self._attempts or Attempts(self._call)
        if self._running is None:
            timeout = self._attempts.remaining_seconds()
            self._running = self._call.start(self._channel.unary_stream, self._task, self._request, timeout)
        return self._running

    def _cancel(self) -> None:
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    @contextlib.contextmanager
    def _ends_on_errors(self) -> Iterator[None]:
        """End the stream, and its request, if the block raises."""
        try:
            yield
        except BaseException:
            self._ended = True
            self._stop()
            raise

    def _take(self, message: Any) -> str:
        """Return the text that a message adds, often none. Raises ServerError if it contradicts the previous messages."""
        self._started = True
        match message.WhichOneof("event"):
            case "piece" if not getattr(message.piece, "choice_index", 0):
                self._text += message.piece.text
                return str(message.piece.text)
            case "result":
                self._message = getattr(message.result, self._what)
                whole: str = self._text_of(self._message)
                # The pieces are a prefix of the whole text; callers that print them need the rest, too.
                if not whole.startswith(self._text):
                    problem = f"the pieces of the stream are not the beginning of its {self._what}"
                    raise broken_contract(problem, self.request_id)
                return whole.removeprefix(self._text)
            case "summary" if self._message is not None:
                self._result = self._task.result_from(self._message, served_from(message.summary, self.request_id))
        return ""

    def _finish(self) -> None:
        """End the stream. Raises ServerError if the result is missing."""
        self._ended = True
        if self._result is None:
            raise broken_contract(f"the stream ended before its {self._what}", self.request_id)

    def _pause_after(self, failure: grpc.RpcError) -> float:
        """Return the seconds to wait before the request is sent again.

        Raises:
            TriptychClientError: No retry is possible, or one would repeat pieces that were already read.
        """
        error = error_of(failure, self.request_id)
        if self._started or self._attempts is None:
            raise self._call.explained(error)
        self._running = None
        return self._attempts.pause_after(error)

    def _complete(self) -> Result:
        if self._result is None:
            raise RuntimeError("the stream is not at its end: iterate over its pieces first")
        return self._result


class TextStream(_Stream[Result], Iterator[str]):
    """An iterator over the pieces of a text.

    The request is sent when the first piece is read. Leaving the `with` block, `close()`, or dropping the stream before its end
    cancels the request, and the server stops decoding.
    """

    def __next__(self) -> str:
        """Return the next piece. Raises TriptychClientError if the request failed; it is not retried after the first piece."""
        if self._closed:
            raise StopIteration
        with self._ends_on_errors():
            while not self._ended:
                try:
                    for message in self._current():
                        if piece := self._take(message):
                            return piece
                    self._finish()
                except grpc.RpcError as failure:
                    time.sleep(self._pause_after(failure))
        raise StopIteration

    def close(self) -> None:
        """Cancel the request if it is still running. A thread that waits for a piece gets CallCancelledError."""
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class AsyncTextStream(_Stream[Result], AsyncIterator[str]):
    """TextStream for asyncio: `async for`, `async with`, `await stream.close()`."""

    async def __anext__(self) -> str:
        """Return the next piece. Raises TriptychClientError if the request failed; it is not retried after the first piece."""
        if self._closed:
            raise StopAsyncIteration
        with self._ends_on_errors():
            while not self._ended:
                try:
                    with self._call.cancellable():
                        async for message in self._current():
                            if piece := self._take(message):
                                return piece
                    self._finish()
                except grpc.RpcError as failure:
                    await asyncio.sleep(self._pause_after(failure))
        raise StopAsyncIteration

    async def close(self) -> None:
        """Cancel the request if it is still running. A task that waits for a piece gets CallCancelledError."""
        self._cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()


class _TranslationResult(_Stream[Translation]):
    _task, _what = TRANSLATE_STREAM, "translation"
    _text_of = attrgetter("translated_text")

    @property
    def translation(self) -> Translation:
        """The whole translation. Raises RuntimeError before the end of the stream."""
        return self._complete()


class _GenerationResult(_Stream[Generation]):
    _task, _what = GENERATE_STREAM, "generation"
    _text_of = staticmethod(lambda message: message.choices[0].text)

    @property
    def generation(self) -> Generation:
        """All choices. Raises RuntimeError before the end of the stream."""
        return self._complete()


class TranslationStream(_TranslationResult, TextStream[Translation]):
    """The pieces of a translated text; at its end, `translation` has the result. See TextStream."""


class AsyncTranslationStream(_TranslationResult, AsyncTextStream[Translation]):
    """TranslationStream for asyncio."""


class GenerationStream(_GenerationResult, TextStream[Generation]):
    """The pieces of a generated text, the first choice; at its end, `generation` has the result. See TextStream."""


class AsyncGenerationStream(_GenerationResult, AsyncTextStream[Generation]):
    """GenerationStream for asyncio."""
