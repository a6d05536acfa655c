"""Translations and generated texts that arrive piece by piece, blocking and for asyncio."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

import grpc

from triptych_client.call import Attempts, Call
from triptych_client.errors import ServerError
from triptych_client.generation import GENERATE_STREAM, Generation, generation_from
from triptych_client.messages import ServedFields, served_from, translation_from
from triptych_client.results import Translation
from triptych_client.status import error_of
from triptych_client.tasks import TRANSLATE_STREAM, UnaryTask

Result = TypeVar("Result")


@dataclass(frozen=True)
class StreamMethod(Generic[Result]):
    """A method whose stream has pieces, a result and a summary."""

    task: UnaryTask[Result]
    what: str
    """What the stream returns, in errors; the field of its result."""
    text_of: Callable[[Any], str]
    """Returns the text of a result."""
    convert: Callable[[Any, ServedFields], Result]


TRANSLATIONS = StreamMethod(TRANSLATE_STREAM, "translation", lambda message: message.translated_text, translation_from)
GENERATIONS = StreamMethod(GENERATE_STREAM, "generation", lambda message: message.choices[0].text, generation_from)


class StreamReader(Generic[Result]):
    """The state of one stream with a single text. Of several choices it reads the pieces of the first."""

    def __init__(self, method: StreamMethod[Result], request_id: str) -> None:
        self.request_id = request_id
        self._method = method
        self._started = False
        self._text = ""
        self._message: Any = None
        self._result: Result | None = None

    def read(self, message: Any) -> str:
        """Return the text that a message adds, often none. Raises ServerError if it contradicts the previous messages."""
        self._started = True
        match message.WhichOneof("event"):
            case "piece" if not getattr(message.piece, "choice_index", 0):
                return self._add(message.piece.text)
            case "result":
                self._message = getattr(message.result, self._method.what)
                return self._add(self._rest(self._method.text_of(self._message)))
            case "summary" if self._message is not None:
                self._result = self._method.convert(self._message, served_from(message.summary, self.request_id))
        return ""

    def finish(self) -> None:
        """End the stream. Raises ServerError if the result is missing."""
        if self._result is None:
            raise self._broken(f"the stream ended before its {self._method.what}")

    def pause_after(self, failure: grpc.RpcError, attempts: Attempts) -> float:
        """Return the seconds to wait before the request is sent again.

        Raises:
            TriptychClientError: No retry is possible, or one would repeat pieces that were already read.
        """
        error = error_of(failure, self.request_id)
        if self._started:
            raise error
        return attempts.pause_after(error)

    @property
    def result(self) -> Result:
        """The whole result. Raises RuntimeError before the end of the stream."""
        if self._result is None:
            raise RuntimeError("the stream is not at its end: iterate over its pieces first")
        return self._result

    def _add(self, text: str) -> str:
        self._text += text
        return text

    def _rest(self, whole: str) -> str:
        # The pieces are a prefix of the whole text; callers that print them need the rest, too.
        if not whole.startswith(self._text):
            raise self._broken(f"the pieces of the stream are not the beginning of its {self._method.what}")
        return whole.removeprefix(self._text)

    def _broken(self, message: str) -> ServerError:
        return ServerError(message, code="INTERNAL", request_id=self.request_id)


class _Stream(Generic[Result]):
    """The members that the blocking and the asyncio streams share."""

    _kind: ClassVar[StreamMethod[Any]]

    def __init__(self, channel: Any, request: Any, call: Call) -> None:
        self._reader: StreamReader[Result] = StreamReader(self._kind, call.request_id)
        self._request, self._call = request, call
        self._method = channel.unary_stream(self._kind.task.path, **self._kind.task.codec)

    @property
    def request_id(self) -> str:
        """Value of the `x-request-id` that the request sends."""
        return self._reader.request_id

    def _start(self, attempts: Attempts) -> Any:
        return self._method(self._request, timeout=attempts.remaining_seconds(), metadata=self._call.metadata)


class TextStream(_Stream[Result], Iterator[str]):
    """An iterator over the pieces of a text.

    The request is sent when the first piece is read. Leaving the `with` block, `close()`, or dropping the stream before its end
    cancels the request, and the server stops decoding.
    """

    def __init__(self, channel: grpc.Channel, request: Any, call: Call) -> None:
        super().__init__(channel, request, call)
        self._pieces = self._read()

    def __next__(self) -> str:
        """Return the next piece. Raises TriptychClientError if the request failed; it is not retried after the first piece."""
        return next(self._pieces)

    def close(self) -> None:
        """Cancel the request if it is still running."""
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self) -> Generator[str]:
        attempts = self._call.attempts()
        while True:
            call = self._start(attempts)
            try:
                for message in call:
                    if piece := self._reader.read(message):
                        yield piece
                self._reader.finish()
                return
            except grpc.RpcError as failure:
                pause = self._reader.pause_after(failure, attempts)
            finally:
                call.cancel()
            time.sleep(pause)


class AsyncTextStream(_Stream[Result], AsyncIterator[str]):
    """TextStream for asyncio: `async for`, `async with`, `await stream.close()`."""

    def __init__(self, channel: grpc.aio.Channel, request: Any, call: Call) -> None:
        super().__init__(channel, request, call)
        self._pieces = self._read()

    async def __anext__(self) -> str:
        """Return the next piece. Raises TriptychClientError if the request failed; it is not retried after the first piece."""
        return await anext(self._pieces)

    async def close(self) -> None:
        """Cancel the request if it is still running."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self) -> AsyncGenerator[str]:
        attempts = self._call.attempts()
        while True:
            call = self._start(attempts)
            try:
                async for message in call:
                    if piece := self._reader.read(message):
                        yield piece
                self._reader.finish()
                return
            except grpc.RpcError as failure:
                pause = self._reader.pause_after(failure, attempts)
            finally:
                call.cancel()
            await asyncio.sleep(pause)


class _TranslationResult(_Stream[Translation]):
    _kind = TRANSLATIONS

    @property
    def translation(self) -> Translation:
        """The whole translation. Raises RuntimeError before the end of the stream."""
        return self._reader.result


class _GenerationResult(_Stream[Generation]):
    _kind = GENERATIONS

    @property
    def generation(self) -> Generation:
        """All choices. Raises RuntimeError before the end of the stream."""
        return self._reader.result


class TranslationStream(_TranslationResult, TextStream[Translation]):
    """The pieces of a translated text; at its end, `translation` has the result. See TextStream."""


class AsyncTranslationStream(_TranslationResult, AsyncTextStream[Translation]):
    """TranslationStream for asyncio."""


class GenerationStream(_GenerationResult, TextStream[Generation]):
    """The pieces of a generated text, the first choice; at its end, `generation` has the result. See TextStream."""


class AsyncGenerationStream(_GenerationResult, AsyncTextStream[Generation]):
    """GenerationStream for asyncio."""
