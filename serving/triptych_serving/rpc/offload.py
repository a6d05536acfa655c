"""Work that would hold up the event loop goes to threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

Result = TypeVar("Result")

INLINE_CHARACTERS = 2_000  # shorter work is done in the event loop: a hop to a thread costs more than it takes


class Offload:
    """Runs short work at once and long work in a pool."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    async def run(self, size: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """`function(*arguments)`; `size` is roughly how many characters it goes through."""
        if size <= INLINE_CHARACTERS:
            return function(*arguments)
        return await self.run_in_thread(function, *arguments)

    async def run_in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """`function(*arguments)`, which takes its time."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
