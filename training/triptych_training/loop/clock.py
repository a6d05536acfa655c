"""Time limits of a training, the same for all of its processes."""

import math
import time

import torch
from lightning_fabric import Fabric

AGREE_STEPS = 10  # optimizer steps between two broadcasts of the first process' clock


class Clock:
    """Training time, counted from the first step.

    Args:
        fabric: the processes; the first one's clock counts.
        max_minutes: limit of the training, all runs and validations included; 0: none.
        pause_minutes: limit of this run, reading the data included; 0: none.
        opened: `time.monotonic()` when this run began to read its data.
    """

    def __init__(self, fabric: Fabric, max_minutes: float, pause_minutes: float, opened: float) -> None:
        self.before = 0.0  # seconds of earlier runs
        self.gone = 0.0  # share of max_minutes that has passed
        self.pauses = False
        self._fabric, self._max_minutes, self._pause_minutes, self._opened = fabric, max_minutes, pause_minutes, opened
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Training time in seconds, earlier runs included."""
        return self.before + time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds until the training ends; infinite without a limit."""
        return max(0.0, 60 * self._max_minutes - self.elapsed) if self._max_minutes else math.inf

    @property
    def over(self) -> bool:
        """The time limit of the training is reached."""
        return self.gone >= 1

    def start(self, before: float) -> None:
        """Start counting; earlier runs took `before` seconds."""
        self.before, self._started = before, time.monotonic()

    def update(self, step: int) -> None:
        """Update `gone` and `pauses` before optimizer step `step` of this run."""
        if not (self._max_minutes or self._pause_minutes):
            return
        if self._fabric.world_size == 1:
            self.gone, self.pauses = self._read()
        elif step % AGREE_STEPS == 0:
            gone, pauses = self._read()
            shared = torch.tensor([gone, pauses], dtype=torch.float64, device=self._fabric.device)
            torch.distributed.broadcast(shared, 0)
            self.gone, self.pauses = float(shared[0]), bool(shared[1])

    def _read(self) -> tuple[float, bool]:
        gone = min(1.0, self.elapsed / (60 * self._max_minutes)) if self._max_minutes else 0.0
        return gone, bool(self._pause_minutes) and time.monotonic() - self._opened >= 60 * self._pause_minutes
