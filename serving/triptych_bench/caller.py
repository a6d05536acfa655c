"""Calls that block: a thread that waits for its answer costs a third less than an event loop that does."""

import time
from collections.abc import Callable
from typing import Any

import grpc

from triptych_bench.failure import failed
from triptych_bench.target import Outcome, Request
from triptych_client.connection import open_channel
from triptych_client.settings import Settings

Metadata = tuple[tuple[str, str], ...]


class UnaryCaller:
    """See `triptych_bench.target.Caller`. Connects at the first call.

    Args:
        settings: of the server.
        path: of the method; requests and answers are bytes.
        metadata: of every call.
        read: what an answer means, from its bytes and the moment when the call began.
    """

    def __init__(self, settings: Settings, path: str, metadata: Metadata, read: Callable[[bytes, float], Outcome]) -> None:
        self._channel = open_channel(settings)
        self._call: Any = self._channel.unary_unary(path)
        self._timeout, self._metadata = settings.timeout_seconds, metadata
        self._read = read

    def send(self, request: Request) -> Outcome:
        sent = time.perf_counter()
        try:
            answer = self._call(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            return failed(error, sent)
        return self._read(answer, sent)

    def close(self) -> None:
        self._channel.close()
