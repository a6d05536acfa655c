"""What a person sees of a running training: a bar on a terminal, a line now and then in a log file."""

import math
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LOG_SECONDS = 30.0  # between two lines where there is no terminal


class TrainingProgress:
    """Loss, speed in `unit` a second, and time left."""

    def __init__(self, total_steps: int, done_steps: int, unit: str, enabled: bool = True) -> None:
        self._console = Console(stderr=True, quiet=not enabled)
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"loss {{task.fields[loss]:.3f}}  {{task.fields[speed]:,.0f}} {unit}/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not (enabled and self._console.is_terminal),
        )
        self._task = self._bar.add_task("train", total=total_steps, completed=done_steps, epoch=1, loss=0.0, speed=0.0)
        self._total = total_steps
        self._unit = unit
        self._started, self._start_step = time.monotonic(), done_steps
        self._logged = self._started

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def update(self, epoch: int, step: int, loss: float, speed: float, limit: float = math.inf) -> None:
        """Show the state after optimizer step `step`; the training ends within `limit` seconds."""
        self._bar.update(self._task, completed=step, epoch=epoch, loss=loss, speed=speed)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._logged >= LOG_SECONDS:
            self._logged = now
            left = min(limit, (now - self._started) / max(1, step - self._start_step) * (self._total - step))
            self.say(
                f"epoch {epoch} step {step}/{self._total} loss {loss:.3f} {speed:,.0f} {self._unit}/s {left / 60:.0f} min left"
            )

    def say(self, line: str) -> None:
        """Print a line above the bar, or into the log."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        sys.stderr.flush()
