"""What the server uses, looked at again and again while it is measured."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from triptych_bench.measure.steady import Span
from triptych_bench.results import Resources


@dataclass(frozen=True)
class Look:
    """One look."""

    moment: float  # time.perf_counter
    cpu: float | None  # seconds since the process was started
    memory: int | None  # resident bytes


class Meter(Protocol):
    """Can be asked what a server uses."""

    source: str
    seconds: float  # between two looks

    async def look(self) -> Look | None:
        """None: it cannot be seen just now."""
        ...


class Watch:
    """Looks from `start` to `stop`; without a meter it sees nothing."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self._looks: list[Look] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Looks once before it returns."""
        if self._meter is not None:
            await self._look(self._meter)
            self._task = asyncio.create_task(self._go_on(self._meter))

    async def stop(self) -> None:
        """Looks once more."""
        if self._meter is None or self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._look(self._meter)

    def used(self, span: Span) -> Resources | None:
        """Between the looks around the span."""
        if self._meter is None or not self._looks:
            return None
        inside = around(self._looks, span)
        memory = [look.memory for look in inside if look.memory is not None]
        return Resources(source=self._meter.source, cpu_cores=_cores(inside), memory_bytes=max(memory, default=None))

    async def _go_on(self, meter: Meter) -> None:
        while True:
            await asyncio.sleep(meter.seconds)
            await self._look(meter)

    async def _look(self, meter: Meter) -> None:
        if (look := await meter.look()) is not None:
            self._looks.append(look)


def around(looks: Sequence[Look], span: Span) -> list[Look]:
    """Those in the span, with the last before and the first after it."""
    before = [look for look in looks if look.moment <= span.start][-1:]
    after = [look for look in looks if look.moment >= span.end][:1]
    return [*before, *(look for look in looks if span.start < look.moment < span.end), *after]


def _cores(looks: Sequence[Look]) -> float | None:
    known = [(look.moment, look.cpu) for look in looks if look.cpu is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
