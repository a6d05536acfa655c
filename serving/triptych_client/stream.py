"""A translation whose text arrives while it is decoded."""

import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self, TypeAlias

import grpc

from triptych.v1.translation_pb2 import TranslateStreamRequest, TranslateStreamResponse
from triptych_client.reader import StreamReader
from triptych_client.results import Translation
from triptych_client.translate_job import TranslateJob

# A string: grpc's classes are generic for type checkers only.
StreamMethod: TypeAlias = "grpc.UnaryStreamMultiCallable[TranslateStreamRequest, TranslateStreamResponse]"


class TranslationStream(Iterator[str]):
    """An iterator over pieces of the translated text, which joined are the whole; then `translation` has the result.

    The request is sent when the first piece is asked for. Leaving the `with` block, `close()`, or dropping the stream before
    its end cancels the request, and the server stops decoding.
    """

    def __init__(self, method: StreamMethod, job: TranslateJob) -> None:
        self._reader = StreamReader(job.call.request_id)
        self._pieces = self._read(method, job)

    @property
    def request_id(self) -> str:
        """What the request sends as `x-request-id`."""
        return self._reader.request_id

    @property
    def translation(self) -> Translation:
        """The whole translation. Raises RuntimeError while the stream is not at its end."""
        return self._reader.translation

    def __next__(self) -> str:
        """The next piece. Raises TriptychClientError: the request failed; it is not retried once anything has come."""
        return next(self._pieces)

    def close(self) -> None:
        """Cancel the request if it is still under way."""
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self, method: StreamMethod, job: TranslateJob) -> Generator[str]:
        request, attempts = job.stream_request(), job.call.attempts()
        while True:
            call = method(request, timeout=attempts.remaining_seconds(), metadata=job.call.metadata)
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
