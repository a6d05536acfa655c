"""Reasons to end or pause a training, the same for all of its processes: time limits and signals."""

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric

from triptych.signals import handled_signals
from triptych_training.loop.recipe import Recipe

AGREE_STEPS = 10  # optimizer steps between two broadcasts of the first process' clock
VALIDATION_SHARE = 0.1  # of the time limit is kept for the last validation until one has been measured


class Clock:
    """Training time, from the start of a run.

    Args:
        fabric: the processes; the first one's clock counts.
        recipe: the time limits, and the clock.
        opened: `recipe.now()` when this run began to read its data.
    """

    def __init__(self, fabric: Fabric, recipe: Recipe, opened: float) -> None:
        self.before = 0.0  # seconds of earlier runs
        self.gone = 0.0  # share of max_minutes that has passed
        self.pauses = False
        self.signal = 0  # number of the signal that asks for an end
        self.validation = VALIDATION_SHARE * 60 * recipe.max_minutes  # seconds to keep for the last validation
        self._fabric, self._recipe, self._opened = fabric, recipe, opened

    @property
    def elapsed(self) -> float:
        """Training time in seconds, earlier runs included."""
        return self.before + self._recipe.now() - self._opened

    @property
    def left(self) -> float:
        """Seconds until the training ends, validation included; infinite without a limit."""
        return max(0.0, 60 * self._recipe.max_minutes - self.elapsed) if self._recipe.max_minutes else math.inf

    @property
    def over(self) -> bool:
        """The time limit of the training is reached."""
        return self.gone >= 1

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Pause at the first SIGINT or SIGTERM inside the context; a second one has its usual effect at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def stop(number: int) -> None:
            if self.signal:
                signal.signal(number, usual[signal.Signals(number)])
                signal.raise_signal(number)
            self.signal = number

        with handled_signals(stop):
            yield

    def update(self, step: int) -> None:
        """Update `gone` and `pauses` before optimizer step `step` of this run."""
        if self._fabric.world_size == 1:
            self.gone, self.pauses = self._read()
        elif step % AGREE_STEPS == 0:
            gone, pauses = self._read()
            shared = torch.tensor([gone, pauses], dtype=torch.float64, device=self._fabric.device)
            torch.distributed.broadcast(shared, 0)
            self.gone, self.pauses = float(shared[0]), bool(shared[1])

    def _read(self) -> tuple[float, bool]:
        limit, pause = 60 * self._recipe.max_minutes, 60 * self._recipe.pause_minutes
        gone = min(1.0, self.elapsed / max(1.0, limit - self.validation)) if limit else 0.0
        gone = max(self.gone, gone)  # a validation may take less time than was kept for it
        return gone, bool(self.signal) or (pause > 0 and self._recipe.now() - self._opened >= pause)
