"""Requests that are under way together, and can be stopped together."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

Response = TypeVar("Response")


class RequestGroup:
    """The requests of one call by the user; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._running: set[grpc.Future[Any]] = set()

    def run(self, start: "Callable[[], grpc.Future[Response]]") -> Response:
        """Start a request and wait for its response.

        Raises:
            grpc.RpcError: It failed.
            grpc.FutureCancelledError: The group was stopped, before or meanwhile.
        """
        with self._lock:
            if self._stopped.is_set():
                raise grpc.FutureCancelledError
            request = start()
            self._running.add(request)
        try:
            return request.result()
        finally:
            # Does nothing to a finished request; an interrupted wait must not leave one running.
            request.cancel()
            with self._lock:
                self._running.discard(request)

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until the group is stopped."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Cancel what is running, here and on the server, and start nothing more."""
        with self._lock:
            self._stopped.set()
            for request in self._running:
                request.cancel()
