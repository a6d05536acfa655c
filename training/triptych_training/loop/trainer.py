"""The training loop: plan, step, save, validate, average.

Under torch's launcher (`torchrun`) every process runs this code.
"""

import math
import random
import signal
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from triptych_training.checkpoints.folder import average_weights, load_weights, start_from
from triptych_training.data.batches import Indices, plan_steps
from triptych_training.data.tokenizer import load_tokenizer
from triptych_training.data.word_vectors import fill_token_tables
from triptych_training.errors import CheckpointError, DivergedError, RecipeError
from triptych_training.loop.clock import Clock
from triptych_training.loop.fabric import LossScale, choose_precision, compile_layers, machine_errors, uncompiled
from triptych_training.loop.optimizer import WARMUP_SHARE, MovingAverage, clip_gradients, make_optimizers, make_schedule
from triptych_training.loop.recipe import Recipe, TextRecipe
from triptych_training.loop.reporting import Meter, TrainingProgress, draw_losses
from triptych_training.loop.run_folder import RunFolder

METRIC_STEPS = 50  # optimizer steps between two training lines of metrics.jsonl
AHEAD = 3  # optimizer steps whose batches are prepared in advance


class TrainingTask(Protocol):
    """Data, model and loss of a training.

    `unit` names what the loss sums over and speed counts ("tokens"); `headline` is the metric plotted beside the losses.
    """

    unit: str
    headline: str

    @property
    def model(self) -> nn.Module:
        """Model to train."""

    @property
    def labels(self) -> Sequence[str]:
        """Names of the classes in the order of the model's outputs; empty if it is no classifier."""

    def describe(self) -> str:
        """Describe the data in a few words."""

    def plan(self, epoch: int) -> list[Indices]:
        """Return the epoch's batches as indices of examples; about the same number in every epoch."""

    def weight(self, indices: Indices) -> int:
        """Return the number of units in these examples."""

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        """Make the tensors for `loss`, on the CPU; may run in another thread, with random numbers from `seed` only."""

    @property
    def loss(self) -> Callable[..., Tensor]:
        """Function of a batch's tensors: the sum of the losses over its units."""

    def validate(self) -> Mapping[str, float]:
        """Measure the model, which is in evaluation mode, without gradients; `loss` is one of the metrics."""

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        """Write the model as a checkpoint folder; the final one may contain more, such as samples."""


class Loss(nn.Module):
    """A task's loss as a module with the model's weights, which Fabric wraps for precision and processes."""

    def __init__(self, task: TrainingTask) -> None:
        super().__init__()
        self.model, self._compute = task.model, task.loss

    def forward(self, *batch: Tensor) -> Tensor:
        return self._compute(*batch)


@dataclass
class Position:
    """Progress of a training."""

    epoch: int = 0  # completed epochs
    step_in_epoch: int = 0  # optimizer steps of the current epoch
    step: int = 0  # optimizer steps in total
    seconds: float = 0.0  # training time without validation


@dataclass(frozen=True)
class StepData:
    """Batches of one process for an optimizer step."""

    batches: Sequence[tuple[Tensor, ...]]
    weight: int  # units of the whole step, all processes


class Trainer:
    """Training of a task: its optimizers, schedule and progress."""

    def __init__(self, fabric: Fabric, recipe: Recipe, folder: RunFolder, task: TrainingTask) -> None:
        self.fabric, self.recipe, self.folder, self.task = fabric, recipe, folder, task
        self.position = Position()
        self.clock = Clock(fabric, recipe, folder.opened)
        self.scale = LossScale() if recipe.precision == "fp16" else None
        if recipe.compile and not compile_layers(task.model):
            raise RecipeError("compile: not supported for this kind of model, which has no layers of attention; leave it out")
        fused = fabric.device.type != "mps"
        bfloat16 = fabric.device.type == "cuda" or choose_precision(recipe.precision) == "bf16"
        optimizers = make_optimizers(task.model, recipe.optimizer, recipe.learning_rate, recipe.weight_decay, fused, bfloat16)
        self.loss, *wrapped = fabric.setup(Loss(task), *optimizers)
        self.optimizers: list[Optimizer] = wrapped
        self.average = MovingAverage(task.model, recipe.ema_decay) if recipe.ema_decay else None
        self.per_step = recipe.accumulate * fabric.world_size
        self.total_steps = len(self._plan(0)) * recipe.epochs
        if recipe.max_steps:
            self.total_steps = min(self.total_steps, recipe.max_steps)
        self.warmup = min(recipe.warmup_steps, int(WARMUP_SHARE * self.total_steps))
        self._unvalidated: Meter | None = None  # figures of the last epoch, if it has no checkpoint
        self._metrics: Mapping[str, float] = {}  # the last validation's metrics
        self._restore()
        self.schedule = make_schedule(recipe.schedule, self.warmup, self.total_steps)

    def run(self) -> Path:
        """Train the remaining epochs and write the averaged model.

        Returns:
            The final checkpoint folder, or the file with the training's state if the run pauses before the end.

        Raises:
            RecipeError: the time limit was over before the first step, or memory or a compiler is missing.
        """
        progress = TrainingProgress(self.total_steps, self.position.step, self.task.unit, self.fabric.is_global_zero)
        with progress.bar, self.clock.signals(), machine_errors(self.recipe):
            parameters = sum(p.numel() for p in self.task.model.parameters())
            limit = f"{self.recipe.max_minutes:g} min" if self.recipe.max_minutes else f"{self.total_steps:,} steps"
            progress.say(f"{parameters:,} parameters, {self.task.describe()}, at most {limit}")
            for line in self.folder.left_out():
                progress.say(line)
            if self.warmup < self.recipe.warmup_steps:
                progress.say(f"warm-up steps: {self.warmup} instead of {self.recipe.warmup_steps}, a tenth of the training")
            while self._unfinished():
                if not self._epoch(progress):
                    progress.say(f"stopped after step {self.position.step:,}; the same command with --resume continues")
                    break
            else:
                if not self.position.step:
                    raise RecipeError(
                        f"max_minutes: reading the data took longer than {self.recipe.max_minutes:g}, so that no step was "
                        f"taken; --resume with a larger limit uses what was read"
                    )
                if self._unvalidated:  # the end came right after an epoch without validation
                    self._end_epoch(progress, self._unvalidated)
                return self._finish(progress)
        if self.clock.signal:
            signal.raise_signal(self.clock.signal)
        return self.folder.state

    def _unfinished(self) -> bool:
        """Return whether steps are left, or the last epoch's validation because of a kill."""
        position = self.position
        self.clock.update(0)
        return position.epoch < self.recipe.epochs and (self._steps_left() > 0 or position.step_in_epoch > 0)

    def _steps_left(self) -> int:
        return 0 if self.clock.over else max(0, self.total_steps - self.position.step)

    def _epoch(self, progress: TrainingProgress) -> bool:
        """Train the rest of an epoch; return False if the run pauses before its end."""
        position = self.position
        meter = Meter()
        steps = self._plan(position.epoch)[position.step_in_epoch :][: self._steps_left()]
        started = self.recipe.now()
        with closing(self._prefetch(steps)) as prefetched:
            for number, data in enumerate(prefetched):
                if number:  # the clock was updated at the start of the epoch
                    self.clock.update(number)
                if self.clock.over or self.clock.pauses:
                    break
                loss = self._step(data)
                position.step += 1
                position.step_in_epoch += 1
                seconds = self.recipe.now() - started
                position.seconds += seconds
                meter.add(position.step, loss, data.weight, seconds)
                progress.update(position.epoch + 1, position.step, meter, self.clock.left)
                self._report(meter)
                started = self.recipe.now()
        meter.read()
        if self.clock.pauses and not self.clock.over:
            self._save_state()
            return False
        position.epoch, position.step_in_epoch = position.epoch + 1, 0
        self._unvalidated = meter
        if position.epoch % self.recipe.validate_every == 0 or not self._unfinished():
            self._end_epoch(progress, meter)
        return True

    def _report(self, meter: Meter) -> None:
        """Log metrics and save the state if they are due after a step."""
        step = self.position.step
        if step % METRIC_STEPS == 0:
            meter.read()
            self._log("train", loss=meter.loss, **{f"{self.task.unit}_per_second": meter.speed}, learning_rate=self._rate())
        if step % self.recipe.save_steps == 0:
            meter.read()
            self._save_state()

    def _prefetch(self, steps: Sequence[list[Indices]]) -> Generator[StepData, None, None]:
        """Yield this process' data for each step; a thread prepares the next steps during the current one."""
        with ThreadPoolExecutor(1, thread_name_prefix="triptych-batches") as thread:
            futures = (thread.submit(self._prepare, batches, step) for step, batches in enumerate(steps, self.position.step))
            waiting = deque(islice(futures, AHEAD))
            while waiting:
                data = waiting.popleft().result()
                waiting.extend(islice(futures, 1))
                yield data

    def _prepare(self, batches: list[Indices], step: int) -> StepData:
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        draw = random.Random(f"{self.recipe.seed}/data/{step}/{rank}")
        mine = [self.task.batch(indices, draw.getrandbits(63)) for indices in batches[rank::processes]]
        if self.fabric.device.type == "cuda":  # page-locked memory is copied while the GPU computes
            mine = [tuple(tensor.pin_memory() for tensor in batch) for batch in mine]
        return StepData(mine, sum(map(self.task.weight, batches)) or 1)  # none in words of invisible characters alone

    def _step(self, data: StepData) -> Tensor:
        """Take an optimizer step; return the mean loss of its units on all processes, or the gradient's norm if not finite.

        The result stays on the device because reading it would synchronise.
        """
        # Dropout depends only on seed, step and process, so that a resumed training repeats it.
        draw = random.Random(f"{self.recipe.seed}/{self.position.step}/{self.fabric.global_rank}")
        torch.manual_seed(draw.getrandbits(63))
        total = torch.zeros((), device=self.fabric.device)
        factor = self.scale.factor if self.scale else 1.0
        for index, batch in enumerate(data.batches):
            tensors = [tensor.to(self.fabric.device, non_blocking=True) for tensor in batch]
            with self.fabric.no_backward_sync(self.loss, enabled=index < len(data.batches) - 1):
                # Gradients are averaged over the processes; the factor turns the average into a sum.
                loss = self.loss(*tensors) * (self.fabric.world_size / data.weight)
                self.fabric.backward(loss * factor)
            total += loss.detach()
        if self.fabric.world_size > 1:
            torch.distributed.all_reduce(total)
            total /= self.fabric.world_size
        if self.scale is None or self.scale.unscale(self.task.model.parameters()):
            norm = self._update(data.weight)
            total = torch.where(norm.isfinite(), total, norm)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return total

    def _update(self, units: int) -> Tensor:
        """Clip the gradients, step the optimizers and the moving average; return the norm of the gradients."""
        norm = clip_gradients(self.task.model, self.recipe.clip_norm)
        rate = self._rate() * (units if self.recipe.optimizer == "sgd" else 1)  # SGD's rate is of one unit, as in Word2Vec
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        if self.average:
            self.average.update()
        return norm

    def _plan(self, epoch: int) -> list[list[Indices]]:
        return plan_steps(self.task.plan(epoch), self.per_step)

    def _rate(self) -> float:
        return self.recipe.learning_rate * self.schedule(self.position.step, self.clock.gone)

    def _end_epoch(self, progress: TrainingProgress, meter: Meter) -> None:
        started, epoch = self.recipe.now(), self.position.epoch
        with self.average.swapped() if self.average else nullcontext(), uncompiled(self.recipe.compile):
            if self.fabric.is_global_zero:
                self._save_checkpoint(self.folder.epoch(epoch))
            self._metrics = self._validate()
        self._unvalidated, self.clock.validation = None, self.recipe.now() - started
        if self.fabric.is_global_zero:
            self.folder.prune(epoch, self.recipe.keep)
            self._log("epoch", train_loss=meter.loss if meter.units else None, **_valid(self._metrics))
            draw_losses(self.folder.records(), self.folder.plot, self.task.headline)
            figures = f"training loss {meter.loss:.3f}, validation {_words(self._metrics)}"
            progress.say(f"epoch {epoch}: {figures}, {self.position.seconds / 60:.1f} min")
        self._save_state()

    def _finish(self, progress: TrainingProgress) -> Path:
        last = self.folder.saved(self.position.epoch)[-self.recipe.averaged :]
        made = len({record["epoch"] for record in self.folder.records() if record["kind"] == "epoch"})
        if len(last) < (wanted := min(self.recipe.averaged, made)):
            progress.say(f"average: {len(last)} of {wanted} checkpoints are left in {self.folder.epoch(1).parent}")
        load_weights(self.task.model, average_weights([self.folder.epoch(n) for n in last]), self.folder.model)
        alone = self._metrics  # of the last checkpoint
        if len(last) > 1 or not alone:
            with uncompiled(self.recipe.compile):
                self._metrics = self._validate()
        if self.fabric.is_global_zero:
            self._log("final", **_valid(self._metrics), averaged_epochs=len(last))
            self._save_checkpoint(self.folder.model, self._metrics)
            source = f"mean of the last {len(last)} checkpoints" if len(last) > 1 else "last checkpoint"
            progress.say(f"{self.folder.model}: {source}, {_words(self._metrics)}")
            if alone and alone["loss"] < self._metrics["loss"]:
                progress.say(
                    f"the last checkpoint alone has a validation loss of {alone['loss']:.3f}; the same command with --resume "
                    f"--average 1 makes it the result"
                )
        self.fabric.barrier()
        return self.folder.model

    @torch.inference_mode()
    def _validate(self) -> Mapping[str, float]:
        self.task.model.eval()
        try:
            metrics = self.task.validate()
        finally:
            self.task.model.train()
        if not math.isfinite(metrics["loss"]):  # the last step's update made numbers that are too large
            raise DivergedError(self.position.step, "the validation loss", metrics["loss"])
        return metrics

    def _save_checkpoint(self, path: Path, metrics: Mapping[str, float] | None = None) -> None:
        provenance: dict[str, Any] = {
            "run": self.folder.run,
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
            self.folder.log({"kind": kind, **asdict(self.position), **values})

    def _save_state(self) -> None:
        if self.fabric.is_global_zero:
            self.folder.save_state(
                {
                    "model": self.task.model.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                    "average": self.average.state() if self.average else None,
                    "loss_scale": self.scale.state() if self.scale else None,
                    "elapsed": self.clock.elapsed,
                    "validation": self.clock.validation,
                    "position": asdict(self.position),
                    "batches_per_step": self.per_step,
                    "warmup": self.warmup,
                }
            )
        self.fabric.barrier()

    def _restore(self) -> None:
        state = self.folder.load_state()
        if state is None:
            self._rewind()
            initial = Path(self.recipe.initial)
            if self.recipe.initial and start_from(initial, self.task.model, self.task.labels) and self.fabric.is_global_zero:
                self.folder.log({"kind": "note", "step": 0, "new_classifier": True})
            if isinstance(self.recipe, TextRecipe) and self.recipe.embeddings:
                tokenizer = load_tokenizer(self.folder.tokenizer)
                found = fill_token_tables(self.task.model, tokenizer, Path(self.recipe.embeddings))
                if self.fabric.is_global_zero:
                    self.folder.log({"kind": "note", "step": 0, "tokens_with_given_vectors": found})
            if self.average:
                self.average.reset()
            return
        try:
            self.task.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            if self.average:
                self.average.restore(state["average"])
            if self.scale and state["loss_scale"]:
                self.scale.restore(state["loss_scale"])
            self.position = Position(**state["position"])
            self.warmup, before = state["warmup"], state["batches_per_step"]
            self.clock.before, self.clock.validation = state["elapsed"], state["validation"]
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.folder.state}: does not belong to this model and recipe; start a new training with --initial ({error})"
            ) from error
        if self.position.epoch not in self.folder.saved(self.position.epoch):
            self._unvalidated = Meter()
        self.fabric.barrier()  # before the first process can write that checkpoint
        if before != self.per_step:
            raise RecipeError(
                f"resume: {self.folder.root} took {before} batches per optimizer step, now it would take {self.per_step}; "
                f"keep accumulate x processes the same"
            )
        self._rewind()

    def _rewind(self) -> None:
        if self.fabric.is_global_zero:
            self.folder.rewind(self.position.step, self.position.epoch)


def _valid(metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"valid_{name}": value for name, value in metrics.items()}


def _words(metrics: Mapping[str, float]) -> str:
    figures = {name: f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for name, value in metrics.items()}
    return ", ".join(f"{name} {figure}" for name, figure in figures.items())
