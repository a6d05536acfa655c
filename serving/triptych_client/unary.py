"""Unary calls with retries, one or several at a time, blocking and for asyncio."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any, TypeVar

import grpc

from triptych_client.call import Attempts, Call
from triptych_client.connection import Request, Response, RpcMethod
from triptych_client.errors import InvalidArgumentError
from triptych_client.status import error_of
from triptych_client.tasks import BatchRequest

Result = TypeVar("Result")


class RequestGroup:
    """Running requests that can be stopped together. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._running: set[grpc.Future[Any]] = set()

    def run(self, start: "Callable[[], grpc.Future[Result]]") -> Result:
        """Start a request and wait for its response.

        Raises:
            grpc.RpcError: The request failed.
            grpc.FutureCancelledError: The group was stopped, before or during the request.
        """
        with self._lock:
            if self._stopped.is_set():
                raise grpc.FutureCancelledError
            request = start()
            self._running.add(request)
        try:
            return request.result()
        finally:
            # No effect on a finished request; an interrupted wait must not leave one running.
            request.cancel()
            with self._lock:
                self._running.discard(request)

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over or the group is stopped."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Cancel all running requests, here and on the server, and start no more."""
        with self._lock:
            self._stopped.set()
            for request in self._running:
                request.cancel()


def send(
    channel: grpc.Channel,
    method: RpcMethod[Request, Response],
    request: Request,
    call: Call,
    group: RequestGroup | None = None,
    attempts: Attempts | None = None,
) -> Response:
    """Send one request and return its response. Stopping the group from another thread cancels it.

    Args:
        attempts: Those left, if the request is part of another one.

    Raises:
        TriptychClientError: The last attempt failed.
    """
    group = group or RequestGroup()
    attempts = attempts or Attempts(call)
    while True:
        start = partial(call.start, channel.unary_unary, method, request, attempts.remaining_seconds())
        try:
            response: Response = group.run(start)
            return response
        except grpc.RpcError as failure:
            pause = attempts.pause_after(error_of(failure, call.request_id, call.first_input))
        group.sleep(pause)


def _send_valid(channel: grpc.Channel, part: BatchRequest, group: RequestGroup | None = None) -> Any:
    """Send a request without the inputs that the server rejects. Return None if no input is left."""
    attempts = Attempts(part.call)
    while part.left:
        try:
            return send(channel, part.task, part.request, part.call, group, attempts)
        except InvalidArgumentError as error:
            part.leave_out(error)
    return None


def send_all(channel: grpc.Channel, requests: Sequence[BatchRequest], concurrency: int) -> list[Any]:
    """Return the responses in the order of the requests, of which up to `concurrency` run at a time.

    None for a request without valid inputs.

    Raises:
        TriptychClientError: One request failed; the others are cancelled.
    """
    if len(requests) <= 1:
        return [_send_valid(channel, part) for part in requests]
    group = RequestGroup()
    pool = ThreadPoolExecutor(min(concurrency, len(requests)), "triptych-client")
    try:
        futures = [pool.submit(_send_valid, channel, part, group) for part in requests]
        for future in as_completed(futures):
            future.result()
        return [future.result() for future in futures]
    finally:
        group.stop()
        pool.shutdown(cancel_futures=True)


async def send_async(
    channel: grpc.aio.Channel,
    method: RpcMethod[Request, Response],
    request: Request,
    call: Call,
    attempts: Attempts | None = None,
) -> Response:
    """`send` for asyncio; cancelling the task cancels the request."""
    attempts = attempts or Attempts(call)
    while True:
        try:
            with call.cancellable():
                response: Response = await call.start(channel.unary_unary, method, request, attempts.remaining_seconds())
            return response
        except grpc.RpcError as failure:
            pause = attempts.pause_after(error_of(failure, call.request_id, call.first_input))
        await asyncio.sleep(pause)


async def send_all_async(channel: grpc.aio.Channel, requests: Sequence[BatchRequest], concurrency: int) -> list[Any]:
    """`send_all` for asyncio."""
    limit = asyncio.Semaphore(concurrency)

    async def send_valid(part: BatchRequest) -> Any:
        attempts: Attempts | None = None
        while part.left:
            try:
                async with limit:
                    attempts = attempts or Attempts(part.call)
                    return await send_async(channel, part.task, part.request, part.call, attempts)
            except InvalidArgumentError as error:
                part.leave_out(error)
        return None

    tasks = [asyncio.create_task(send_valid(part)) for part in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
