"""Which models work for somebody at the moment, so that none is closed under a request."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from triptych_serving.models.model import Model


class Leases:
    """Used in the event loop alone."""

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()  # by identity: two versions of a model are two
        self._returned = asyncio.Event()  # a new one after each return

    @contextmanager
    def hold(self, model: Model) -> Iterator[None]:
        """It is in use until the block ends."""
        self.take(model)
        try:
            yield
        finally:
            self.give_back(model)

    def take(self, model: Model) -> None:
        """It is in use until it is given back."""
        self._held[id(model)] += 1

    def give_back(self, model: Model) -> None:
        """As often as it was taken."""
        self._held[id(model)] -= 1
        if not self._held[id(model)]:
            del self._held[id(model)]
            returned, self._returned = self._returned, asyncio.Event()
            returned.set()

    async def idle(self, model: Model) -> None:
        """Wait until nobody uses it. Whoever waits keeps it out of the registry, so that nobody begins to."""
        while self._held[id(model)]:
            await self._returned.wait()
