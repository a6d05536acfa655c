"""Calls in progress and the models that they use: a shutdown waits for the former, an unload for the latter."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from triptych_serving.models.model import Model


class ActiveCalls:
    """Count the calls in progress. Not thread-safe: for the event loop only."""

    def __init__(self) -> None:
        self.rejecting = asyncio.Event()  # set by the server: no more calls are accepted, and streams stop reading requests
        self.count = 0
        self._began = time.monotonic()  # the last call
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        """Count a call that has started."""
        self.count += 1
        self._began = time.monotonic()
        self._idle.clear()

    def end(self) -> None:
        """Count a call that has ended."""
        self.count -= 1
        if not self.count:
            self._idle.set()

    async def wait_until_drained(self) -> None:
        """Wait until no call is in progress."""
        await self._idle.wait()

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until no call has begun for some time."""
        while (left := self._began + seconds - time.monotonic()) > 0:
            await asyncio.sleep(left)


class ModelLeases:
    """Count the users of each model, so that no model is closed while in use. Not thread-safe: for the event loop only."""

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()  # by identity: two versions of a model are two
        self._returned: asyncio.Event | None = None  # for the next return, if somebody waits for it

    @contextmanager
    def hold(self, model: Model) -> Iterator[None]:
        """Keep a model in use until the block ends."""
        self.acquire(model)
        try:
            yield
        finally:
            self.release(model)

    def acquire(self, model: Model) -> None:
        """Keep a model in use until `release`."""
        self._held[id(model)] += 1

    def release(self, model: Model) -> None:
        """Give back one lease of a model."""
        self._held[id(model)] -= 1
        if not self._held[id(model)]:
            del self._held[id(model)]
            if self._returned is not None:
                self._returned.set()
                self._returned = None

    async def wait_until_idle(self, model: Model) -> None:
        """Wait until a model is not in use. The caller has taken it out of the registry, so that no new call finds it."""
        while self._held[id(model)]:
            self._returned = self._returned or asyncio.Event()
            await self._returned.wait()
