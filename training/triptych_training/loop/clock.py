"""How much of a training's time is gone, told alike by every process."""

import math
import time
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric

AGREE_STEPS = 10  # optimizer steps from one look at the first process' clock to the next, where there are several processes


@dataclass(frozen=True)
class Limits:
    """When to stop, in minutes; 0: never.

    max_minutes    of the training: all its runs, validations included
    pause_minutes  of this run, from its very beginning
    """

    max_minutes: float = 0.0
    pause_minutes: float = 0.0


class Clock:
    """Counts from the first step on; what runs before this one took is `before`.

    Args:
        fabric: the processes; the first one's clock counts.
        limits: when to stop.
        opened: `time.monotonic()` when this run began to read its data.
    """

    def __init__(self, fabric: Fabric, limits: Limits, opened: float) -> None:
        self.before = 0.0  # seconds
        self.gone = 0.0  # share of max_minutes
        self.pauses = False
        self._fabric, self._limits, self._opened = fabric, limits, opened
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds of training, earlier runs included."""
        return self.before + time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds until the training ends; infinite without a limit."""
        return max(0.0, 60 * self._limits.max_minutes - self.elapsed) if self._limits.max_minutes else math.inf

    @property
    def over(self) -> bool:
        """The training has had its time."""
        return self.gone >= 1

    def start(self, before: float) -> None:
        """Begin to count; earlier runs took `before` seconds."""
        self.before, self._started = before, time.monotonic()

    def look(self, step: int) -> None:
        """Bring `gone` and `pauses` up to date before optimizer step `step` of this run."""
        if not (self._limits.max_minutes or self._limits.pause_minutes):
            return
        if self._fabric.world_size == 1:
            self.gone, self.pauses = self._read()
        elif step % AGREE_STEPS == 0:
            gone, pauses = self._read()
            told = torch.tensor([gone, pauses], dtype=torch.float64, device=self._fabric.device)
            torch.distributed.broadcast(told, 0)
            self.gone, self.pauses = float(told[0]), bool(told[1])

    def _read(self) -> tuple[float, bool]:
        limits = self._limits
        gone = min(1.0, self.elapsed / (60 * limits.max_minutes)) if limits.max_minutes else 0.0
        return gone, bool(limits.pause_minutes) and time.monotonic() - self._opened >= 60 * limits.pause_minutes
