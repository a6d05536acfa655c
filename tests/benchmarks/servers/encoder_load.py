"""Closed loops of encoder requests, also from several processes: one Python process cannot send as many as a GPU processes."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from candidates.encoder_tasks import method, request
from grpc import aio

from triptych_bench.load.loops import run_closed_loop

OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
_held: list[Any] = []  # requests, in a process that sends


async def send_all(address: str, stub: Callable[[aio.Channel], Any], requests: Sequence[Any], in_flight: int) -> None:
    """Send each request once, with a fixed number in flight.

    Raises:
        RuntimeError: A request failed.
    """
    async with aio.insecure_channel(address, OPTIONS) as channel:
        log = await run_closed_loop(stub(channel), requests, in_flight)
    if log.messages:
        raise RuntimeError(f"{address}: {log.messages}")


@contextmanager
def encoder_load(
    address: str, kind: str, inputs: Sequence[Any], in_flight: int, per_request: int, clients: int
) -> Iterator[Callable[[], float]]:
    """Start processes that share inputs and requests in flight; the result sends all inputs and returns the seconds."""
    context = multiprocessing.get_context("spawn")
    clients = max(1, min(clients, in_flight // per_request))
    with ExitStack() as stack:
        pools = []
        for number in range(clients):
            pool = ProcessPoolExecutor(1, context, _hold, (kind, inputs[number::clients], per_request))
            pools.append(stack.enter_context(pool))

        def run() -> float:
            share = max(1, in_flight // per_request // clients)
            return max(future.result() for future in [pool.submit(_send, address, kind, share) for pool in pools])

        yield run


def _hold(kind: str, inputs: Sequence[Any], per_request: int) -> None:
    _held[:] = [request(kind, inputs[start : start + per_request]) for start in range(0, len(inputs), per_request)]


def _send(address: str, kind: str, in_flight: int) -> float:
    started = time.perf_counter()
    asyncio.run(send_all(address, partial(method, kind), _held, in_flight))
    return time.perf_counter() - started
