"""The training loop: plan, step, save, validate, average.

Lightning Fabric hosts precision, devices and processes; under torch's launcher (`torchrun`) every process runs this same code.
"""

import math
import random
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.optim import Optimizer

from triptych_training.checkpoints.folder import WEIGHTS, average_weights, load_weights, read_weights
from triptych_training.data.batches import plan_steps
from triptych_training.errors import CheckpointError, DivergedError, RecipeError
from triptych_training.loop.clock import Clock, Limits
from triptych_training.loop.compiling import compile_layers, uncompiled
from triptych_training.loop.loss_scale import LossScale
from triptych_training.loop.moving_average import MovingAverage
from triptych_training.loop.optimizer import make_optimizers, make_schedule
from triptych_training.loop.plot import draw_losses
from triptych_training.loop.progress import TrainingProgress
from triptych_training.loop.recipe import Recipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.task import Task

METRIC_STEPS = 50  # optimizer steps between two training lines of metrics.jsonl
AHEAD = 3  # optimizer steps whose batches are made while one is computed


@dataclass
class Position:
    """How far a training has come."""

    epoch: int = 0  # whole epochs done
    step_in_epoch: int = 0  # optimizer steps done in the current one
    step: int = 0  # optimizer steps done in all
    seconds: float = 0.0  # training time, validation not included


@dataclass(frozen=True)
class Share:
    """One process' part of an optimizer step."""

    batches: Sequence[tuple[Tensor, ...]]
    weight: int  # units of the whole step, all processes


class Trainer:
    """One training: the task, its optimizers and where they stand."""

    def __init__(self, fabric: Fabric, recipe: Recipe, folder: RunFolder, task: Task) -> None:
        self.fabric, self.recipe, self.folder, self.task = fabric, recipe, folder, task
        self.position = Position()
        self.clock = Clock(fabric, Limits(recipe.max_minutes, recipe.pause_minutes), folder.opened)
        self.scale = LossScale() if recipe.precision == "fp16" else None
        if recipe.compile:
            compile_layers(task.model)
        fused = fabric.device.type != "mps"
        optimizers = make_optimizers(task.model, recipe.optimizer, recipe.learning_rate, recipe.weight_decay, fused)
        self.loss, *wrapped = fabric.setup(task.loss, *optimizers)
        self.optimizers: list[Optimizer] = wrapped
        self.average = MovingAverage(task.model, recipe.ema_decay) if recipe.ema_decay else None
        self.per_step = recipe.accumulate * fabric.world_size
        self.total_steps = len(self._plan(0)) * recipe.epochs
        if recipe.max_steps:
            self.total_steps = min(self.total_steps, recipe.max_steps)
        self.schedule = make_schedule(recipe.schedule, recipe.warmup_steps, self.total_steps)
        self._restore()

    def run(self) -> Path:
        """Train the epochs that are left, then write the averaged model.

        Returns:
            The result, a checkpoint folder; where the run was to pause before the end, the file with the training's state.
        """
        unit = self.task.unit
        with TrainingProgress(self.total_steps, self.position.step, unit, self.fabric.is_global_zero) as progress:
            parameters = sum(p.numel() for p in self.task.model.parameters())
            progress.say(f"{parameters:,} parameters, {self.task.describe()}, {self.total_steps:,} steps")
            self.clock.start(self.clock.before)
            while self._unfinished():
                if not self._epoch(progress):
                    progress.say(f"paused after step {self.position.step:,}, to be resumed")
                    return self.folder.state
            return self._finish(progress)

    def _unfinished(self) -> bool:
        """Steps are left, or the last epoch took all of its own and was not yet validated when a kill came."""
        position = self.position
        self.clock.look(0)
        return position.epoch < self.recipe.epochs and (self._steps_left() > 0 or position.step_in_epoch > 0)

    def _steps_left(self) -> int:
        return 0 if self.clock.over else max(0, self.total_steps - self.position.step)

    def _epoch(self, progress: TrainingProgress) -> bool:
        """Train what is left of an epoch; False if the run was to pause before its end."""
        position = self.position
        meter = _Meter()
        steps = self._plan(position.epoch)[position.step_in_epoch :][: self._steps_left()]
        started = time.monotonic()
        with closing(self._shares(steps)) as shares:
            for number, share in enumerate(shares):
                if number:  # the clock was looked at when the epoch was begun
                    self.clock.look(number)
                if self.clock.over or self.clock.pauses:
                    break
                loss = self._step(share)
                position.step += 1
                position.step_in_epoch += 1
                seconds = time.monotonic() - started
                position.seconds += seconds
                meter.add(position.step, loss, share.weight, seconds)
                progress.update(position.epoch + 1, position.step, meter.loss, meter.speed, self.clock.left)
                self._report(meter)
                started = time.monotonic()
        meter.read()
        if self.clock.pauses and not self.clock.over:
            self._save_state()
            return False
        position.epoch, position.step_in_epoch = position.epoch + 1, 0
        if position.epoch % self.recipe.validate_every == 0 or not self._unfinished():
            self._end_epoch(progress, meter)
        return True

    def _report(self, meter: "_Meter") -> None:
        """Log and save what is due after a step."""
        step = self.position.step
        if step % METRIC_STEPS == 0:
            meter.read()
            self._log("train", loss=meter.loss, **{f"{self.task.unit}_per_second": meter.speed}, learning_rate=self._rate())
        if step % self.recipe.save_steps == 0:
            meter.read()
            self._save_state()

    def _shares(self, steps: Sequence[list[list[int]]]) -> Generator[Share, None, None]:
        """What this process computes, step by step; the next ones are made while the current one is computed."""
        with ThreadPoolExecutor(1, thread_name_prefix="triptych-batches") as thread:
            jobs = (thread.submit(self._share, batches, number) for number, batches in enumerate(steps, self.position.step))
            waiting = deque(islice(jobs, AHEAD))
            while waiting:
                share = waiting.popleft().result()
                waiting.extend(islice(jobs, 1))
                yield share

    def _share(self, batches: list[list[int]], step: int) -> Share:
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        draw = random.Random(f"{self.recipe.seed}/data/{step}/{rank}")
        mine = [self.task.batch(indices, draw.getrandbits(63)) for indices in batches[rank::processes]]
        if self.fabric.device.type == "cuda":  # page-locked memory travels while the GPU computes
            mine = [tuple(tensor.pin_memory() for tensor in batch) for batch in mine]
        return Share(mine, sum(map(self.task.weight, batches)))

    def _step(self, share: Share) -> Tensor:
        """One optimizer step; the loss, a mean over all the step's units, stays on the device: reading it would wait for it."""
        self._seed_step()
        total = torch.zeros((), device=self.fabric.device)
        factor = self.scale.factor if self.scale else 1.0
        for index, batch in enumerate(share.batches):
            tensors = [tensor.to(self.fabric.device, non_blocking=True) for tensor in batch]
            with self.fabric.no_backward_sync(self.loss, enabled=index < len(share.batches) - 1):
                # Gradients are averaged over the processes; the factor makes that a sum.
                loss = self.loss(*tensors) * (self.fabric.world_size / share.weight)
                self.fabric.backward(loss * factor)
            total += loss.detach()
        if self.scale is None or self.scale.unscale(self.task.model.parameters()):
            self._update()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return total

    def _update(self) -> None:
        """Follow the gradients."""
        if self.recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.task.model.parameters(), self.recipe.clip_norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._rate()
            optimizer.step()
        if self.average:
            self.average.update()

    def _seed_step(self) -> None:
        """Dropout depends on seed, step and process alone: a resumed training draws what the first one would have drawn."""
        draw = random.Random(f"{self.recipe.seed}/{self.position.step}/{self.fabric.global_rank}")
        torch.manual_seed(draw.getrandbits(63))

    def _plan(self, epoch: int) -> list[list[list[int]]]:
        return plan_steps(self.task.plan(epoch), self.per_step)

    def _rate(self) -> float:
        return self.recipe.learning_rate * self.schedule(self.position.step, self.clock.gone)

    def _end_epoch(self, progress: TrainingProgress, meter: "_Meter") -> None:
        if self.fabric.is_global_zero:
            with self._averaged(), self._plainly():
                self._save_checkpoint(self.folder.epoch(self.position.epoch))
                metrics = self.task.validate()
            self.folder.prune(self.recipe.keep)
            self._log("epoch", train_loss=meter.loss if meter.units else None, **_valid(metrics))
            draw_losses(self.folder.records(), self.folder.plot, self.task.headline)
            progress.say(
                f"epoch {self.position.epoch}: training loss {meter.loss:.3f}, validation {_words(metrics)}, "
                f"{self.position.seconds / 60:.1f} min"
            )
        self._save_state()

    def _finish(self, progress: TrainingProgress) -> Path:
        if self.fabric.is_global_zero:
            last = [number for number in self.folder.saved() if number <= self.position.epoch][-self.recipe.averaged :]
            load_weights(self.task.model, average_weights([self.folder.epoch(n) for n in last]), self.folder.model)
            with self._plainly():
                metrics = self.task.validate()
            self._log("final", **_valid(metrics), averaged_epochs=len(last))
            self._save_checkpoint(self.folder.model, metrics)
            progress.say(f"{self.folder.model}: mean of {len(last)} checkpoints, {_words(metrics)}")
        self.fabric.barrier()
        return self.folder.model

    def _averaged(self) -> Any:
        return self.average.swapped() if self.average else nullcontext()

    def _plainly(self) -> Any:
        return uncompiled() if self.recipe.compile else nullcontext()

    def _save_checkpoint(self, path: Path, metrics: Mapping[str, float] | None = None) -> None:
        provenance: dict[str, Any] = {
            "recipe": asdict(self.recipe),
            "epochs": self.position.epoch,
            "steps": self.position.step,
            "training_seconds": round(self.position.seconds),
            "torch": torch.__version__,
        }
        if metrics:
            provenance["metrics"] = dict(metrics)
        self.task.save(path, provenance, final=metrics is not None)

    def _log(self, kind: str, **values: float | None) -> None:
        if self.fabric.is_global_zero:
            position = asdict(self.position)
            self.folder.log({"kind": kind, **position, **values})

    def _save_state(self) -> None:
        if self.fabric.is_global_zero:
            self.folder.save_state(
                {
                    "model": self.task.model.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                    "average": self.average.state() if self.average else None,
                    "loss_scale": self.scale.state() if self.scale else None,
                    "elapsed": self.clock.elapsed,
                    "position": asdict(self.position),
                    "batches_per_step": self.per_step,
                }
            )
        self.fabric.barrier()

    def _restore(self) -> None:
        state = self.folder.load_state()
        if self.fabric.is_global_zero:
            self.folder.rewind(state["position"]["step"] if state else 0)
        if state is None:
            if self.recipe.initial:
                folder = Path(self.recipe.initial)
                load_weights(self.task.model, read_weights(folder / WEIGHTS), folder)
                if self.average:
                    self.average.reset()
            return
        try:
            self.task.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            if self.average:
                self.average.restore(state["average"])
            if self.scale and state.get("loss_scale"):
                self.scale.restore(state["loss_scale"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self.folder.state}: is not of this model and recipe ({error})") from error
        self.position = Position(**state["position"])
        self.clock.before = float(state.get("elapsed", self.position.seconds))
        if (before := state.get("batches_per_step", self.per_step)) != self.per_step:
            raise RecipeError(
                f"resume: {self.folder.root} took {before} batches an optimizer step, now it would be {self.per_step}; "
                f"keep accumulate x processes as it was"
            )


class _Meter:
    """Smoothed loss and speed for people to look at.

    A step's loss is read when the next one is on its way: a GPU that is waited for at every step stands still between two.
    """

    def __init__(self) -> None:
        self.loss = 0.0
        self.speed = 0.0
        self.units = 0
        self._weight = 0.0
        self._unread: tuple[int, Tensor, float] | None = None

    def add(self, step: int, loss: Tensor, units: int, seconds: float) -> None:
        """Take in step number `step`, counted from 1.

        Raises:
            DivergedError: the loss of the one before is not a number.
        """
        self.read()
        self.units += units
        self._weight = 0.98 * self._weight + 0.02
        share = 0.02 / self._weight
        self._unread = step, loss, share
        self.speed += share * (units / max(seconds, 1e-9) - self.speed)

    def read(self) -> None:
        """Wait for the last step's loss.

        Raises:
            DivergedError: it is not a number.
        """
        if self._unread is None:
            return
        (step, tensor, share), self._unread = self._unread, None
        loss = float(tensor)
        if not math.isfinite(loss):
            raise DivergedError(
                f"step {step}: the loss is {loss}; lower the learning rate or raise warmup_steps, "
                f"then go on from the last saved state or start anew"
            )
        self.loss += share * (loss - self.loss)


def _valid(metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"valid_{name}": value for name, value in metrics.items()}


def _words(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
