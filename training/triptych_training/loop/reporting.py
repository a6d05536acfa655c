"""Progress of a running training: smoothed figures, progress bar or log lines, and the plot of the losses."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from triptych_training.data.files import replacing
from triptych_training.errors import DivergedError

LOG_SECONDS = 30.0  # between two log lines if there is no terminal
ESTIMATE_STEPS = 20  # after which the duration of the training is estimated
MINUTE, LONG_SECONDS = 60.0, 3600.0  # longer trainings get a hint how to shorten them


class Meter:
    """Smoothed loss and speed.

    A step's loss is read only after the next step was started: reading it at once would let a GPU idle between two steps.
    """

    def __init__(self) -> None:
        self.loss = 0.0
        self.measured = False  # a loss was read
        self.speed = 0.0
        self.units = 0
        self._weight = 0.0
        self._unread: tuple[int, Tensor, float] | None = None

    def add(self, step: int, loss: Tensor, units: int, seconds: float) -> None:
        """Add step number `step`, counted from 1; raises DivergedError if the previous step's loss is not finite."""
        self.read()
        self.units += units
        self._weight = 0.98 * self._weight + 0.02
        share = 0.02 / self._weight
        self._unread = step, loss, share
        self.speed += share * (units / max(seconds, 1e-9) - self.speed)

    def read(self) -> None:
        """Wait for the last step's loss; raises DivergedError if it is not finite."""
        if self._unread is None:
            return
        (step, tensor, share), self._unread = self._unread, None
        loss = float(tensor)
        if not math.isfinite(loss):
            raise DivergedError(step, "the loss or the norm of the gradient", loss)
        self.loss += share * (loss - self.loss)
        self.measured = True


class TrainingProgress:
    """Progress bar on a terminal, otherwise log lines: loss, speed in `unit` per second, time left. `bar` is to be entered."""

    def __init__(self, total_steps: int, done_steps: int, unit: str, enabled: bool) -> None:
        self._console = Console(stderr=True, quiet=not enabled)
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"loss {{task.fields[loss]:.3f}}  {{task.fields[speed]:,.0f}} {unit}/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not (enabled and self._console.is_terminal),
        )
        self._task = self.bar.add_task("train", total=total_steps, completed=done_steps, epoch=1, loss=0.0, speed=0.0)
        self._total = total_steps
        self._unit = unit
        self._started, self._start_step = time.monotonic(), done_steps
        self._logged = self._started

    def update(self, epoch: int, step: int, meter: Meter, limit: float = math.inf) -> None:
        """Show the state after optimizer step `step`; the training ends within `limit` seconds."""
        self.bar.update(self._task, completed=step, epoch=epoch, speed=meter.speed)
        if meter.measured:
            self.bar.update(self._task, loss=meter.loss)
        now, done = time.monotonic(), step - self._start_step
        left = min(limit, (now - self._started) / max(1, done) * (self._total - step))
        if done == ESTIMATE_STEPS and left > MINUTE:
            hint = "; --max-minutes or a smaller --size would shorten it" if left > LONG_SECONDS and limit == math.inf else ""
            self.say(f"about {left / MINUTE:,.0f} min on this machine, without validations{hint}")
        if meter.measured and not self._console.is_terminal and now - self._logged >= LOG_SECONDS:
            self._logged = now
            figures = f"loss {meter.loss:.3f} {meter.speed:,.0f} {self._unit}/s {left / 60:.0f} min left"
            total = f"/{self._total}" if limit == math.inf else ""
            self.say(f"epoch {epoch} step {step}{total} {figures}")

    def say(self, line: str) -> None:
        """Print a line above the bar, or into the log."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        sys.stderr.flush()


def draw_losses(records: Sequence[Mapping[str, Any]], path: Path, headline: str) -> None:
    """Plot training and validation loss (nats) over the steps, with the validation metric `headline`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 slow
    from matplotlib.figure import Figure  # noqa: PLC0415 slow

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    losses = figure.subplots()
    training = [r for r in records if r["kind"] == "train"]
    epochs = [r for r in records if r["kind"] == "epoch"]
    losses.plot([r["step"] for r in training], [r["loss"] for r in training], label="training", lw=1)
    losses.plot([r["step"] for r in epochs], [r["valid_loss"] for r in epochs], "o-", label="validation")
    losses.set_xlabel("optimizer step")
    losses.set_ylabel("loss, nats")
    scores = losses.twinx()
    scores.plot([r["step"] for r in epochs], [r[f"valid_{headline}"] for r in epochs], "s--", color="tab:green", label=headline)
    scores.set_ylabel(f"validation {headline}")
    lines = [*losses.get_lines(), *scores.get_lines()]
    losses.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120)
