"""Sending requests that have one response, with retries; blocking."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import TypeVar

import grpc

from triptych_client.call import Call
from triptych_client.group import RequestGroup
from triptych_client.status import error_of

Request = TypeVar("Request")
Response = TypeVar("Response")


def send(method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request, call: Call) -> Response:
    """One request's response. Raises TriptychClientError."""
    return send_in(RequestGroup(), method, request, call)


def send_all(
    method: "grpc.UnaryUnaryMultiCallable[Request, Response]", requests: Sequence[tuple[Request, Call]], concurrency: int
) -> list[Response]:
    """The responses, in the requests' order. Raises TriptychClientError: one failed; the others are cancelled."""
    if len(requests) <= 1:
        return [send(method, request, call) for request, call in requests]
    group = RequestGroup()
    pool = ThreadPoolExecutor(min(concurrency, len(requests)), "triptych-client")
    try:
        futures = [pool.submit(send_in, group, method, request, call) for request, call in requests]
        for future in as_completed(futures):
            future.result()
        return [future.result() for future in futures]
    finally:
        group.stop()
        pool.shutdown(cancel_futures=True)


def send_in(
    group: RequestGroup, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request, call: Call
) -> Response:
    """One request's response, which stopping the group from another thread cancels."""
    attempts = call.attempts()
    while True:
        start = partial(method.future, request, timeout=attempts.remaining_seconds(), metadata=call.metadata)
        try:
            return group.run(start)
        except grpc.RpcError as failure:
            pause = attempts.pause_after(error_of(failure, call.request_id, call.first_input))
        group.sleep(pause)
