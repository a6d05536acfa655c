"""Threads for what takes its time with documents: none of it shall hold up the event loop, or the texts of others."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

HEAVY_THREADS = 2  # Python runs one of them at a time: more would only slow the engine down


class DocumentThreads:
    """Started when they are needed first. A thread ends what it has begun, also when nobody waits for it any more.

    Args:
        begin: what each thread does first.
    """

    def __init__(self, begin: Callable[[], None] | None = None) -> None:
        self._heavy = ThreadPoolExecutor(HEAVY_THREADS, "triptych-document", begin)
        self._light = ThreadPoolExecutor(1, "triptych-segments", begin)

    def run_heavy(self, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """`function(*arguments)` of a whole document: seconds."""
        return asyncio.get_running_loop().run_in_executor(self._heavy, function, *arguments)

    def run_light(self, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """`function(*arguments)` of some segments: milliseconds."""
        return asyncio.get_running_loop().run_in_executor(self._light, function, *arguments)

    def close(self) -> None:
        """What has not begun never will."""
        for pool in (self._heavy, self._light):
            pool.shutdown(wait=False, cancel_futures=True)
