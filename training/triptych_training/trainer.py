"""The training loop: plan, step, save, validate, average.

Lightning Fabric hosts precision, devices and processes; under torch's launcher (`torchrun`) every process runs this same code.
"""

import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException
from tokenizers import Tokenizer
from torch.optim import Optimizer

from triptych_training.batches import Batch, Example, collate, plan_batches, plan_steps
from triptych_training.checkpoint import Checkpoint, average_weights, load_weights, save_checkpoint
from triptych_training.corpus import Pair, read_pairs
from triptych_training.errors import CheckpointError, DivergedError, RecipeError
from triptych_training.loss import SequenceLoss
from triptych_training.optimizer import make_optimizers, make_schedule
from triptych_training.plot import draw_losses
from triptych_training.progress import TrainingProgress
from triptych_training.recipe import Recipe
from triptych_training.runfolder import RunFolder
from triptych_training.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from triptych_training.transformer import Transformer, TransformerConfig
from triptych_training.validation import Validation, validate

METRIC_STEPS = 50  # optimizer steps between two training lines of metrics.jsonl
SAMPLE_PAIRS = 500  # validation pairs that the final checkpoint carries


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs and their ids."""

    train: Sequence[Example]
    valid: Sequence[Example]
    valid_pairs: Sequence[Pair]


@dataclass
class Position:
    """How far a training has come."""

    epoch: int = 0  # whole epochs done
    step_in_epoch: int = 0  # optimizer steps done in the current one
    step: int = 0  # optimizer steps done in all
    seconds: float = 0.0  # training time, validation not included


def train_translation(recipe: Recipe, shape: TransformerConfig, out: Path, resume: bool = False) -> Path:
    """Train a translation model into the run folder `out`; returns the final checkpoint folder.

    Args:
        recipe: what to do.
        shape: the model; its `vocabulary_size` is replaced by the trained tokenizer's.
        out: the run folder (see runfolder.py).
        resume: go on from the folder's last saved state.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = _make_fabric(recipe)
    fabric.launch()
    fabric.seed_everything(recipe.seed, verbose=False)
    folder = RunFolder(out, recipe, shape, resume)
    tokenizer, corpus = _prepare(fabric, recipe, shape, folder)
    shape = replace(shape, vocabulary_size=tokenizer.get_vocab_size())
    return Trainer(fabric, recipe, shape, folder, tokenizer, corpus).run()


class Trainer:
    """One training: the model, its optimizers and where they stand."""

    def __init__(
        self,
        fabric: Fabric,
        recipe: Recipe,
        shape: TransformerConfig,
        folder: RunFolder,
        tokenizer: Tokenizer,
        corpus: Corpus,
    ) -> None:
        self.fabric, self.recipe, self.folder = fabric, recipe, folder
        self.tokenizer, self.corpus = tokenizer, corpus
        self.model = Transformer(shape)
        self.position = Position()
        optimizers = make_optimizers(
            self.model, recipe.optimizer, recipe.learning_rate, recipe.weight_decay, fused=fabric.device.type != "mps"
        )
        loss = SequenceLoss(self.model, recipe.label_smoothing)
        self.loss, *wrapped = fabric.setup(loss, *optimizers)
        self.optimizers: list[Optimizer] = wrapped
        self.per_step = recipe.accumulate * fabric.world_size
        self.total_steps = len(self._plan(0)) * recipe.epochs  # batches are cut by size alone: every epoch has as many
        self.schedule = make_schedule(recipe.schedule, recipe.warmup_steps, self.total_steps)
        self._restore()

    def run(self) -> Path:
        """Train the epochs that are left, then write the averaged model."""
        with TrainingProgress(self.total_steps, self.position.step, self.fabric.is_global_zero) as progress:
            parameters = sum(p.numel() for p in self.model.parameters())
            progress.say(f"{parameters:,} parameters, {len(self.corpus.train):,} pairs, {self.total_steps:,} steps")
            while self.position.epoch < self.recipe.epochs:
                self._epoch(progress)
            return self._finish(progress)

    def _epoch(self, progress: TrainingProgress) -> None:
        position = self.position
        meter = _Meter()
        for batches in self._plan(position.epoch)[position.step_in_epoch :]:
            started = time.monotonic()
            loss = self._step(batches)
            if not math.isfinite(loss):
                raise DivergedError(
                    f"step {position.step + 1}: the loss is {loss}; lower the learning rate or raise warmup_steps, "
                    f"then go on from the last saved state or start anew"
                )
            position.step += 1
            position.step_in_epoch += 1
            tokens = sum(len(self.corpus.train[i].target) for batch in batches for i in batch)
            seconds = time.monotonic() - started
            position.seconds += seconds
            meter.add(loss, tokens, seconds)
            progress.update(position.epoch + 1, position.step, meter.loss, meter.speed)
            if position.step % METRIC_STEPS == 0:
                self._log("train", loss=meter.loss, tokens_per_second=meter.speed, learning_rate=self._rate())
            if position.step % self.recipe.save_steps == 0:
                self._save_state()
        position.epoch, position.step_in_epoch = position.epoch + 1, 0
        self._end_epoch(progress, meter)

    def _step(self, batches: list[list[int]]) -> float:
        """One optimizer step over this process's share of `batches`; the loss is a mean over all the step's tokens."""
        tokens = sum(len(self.corpus.train[i].target) for batch in batches for i in batch)
        mine = batches[self.fabric.global_rank :: self.fabric.world_size]
        self._seed_step()
        total = 0.0
        for index, indices in enumerate(mine):
            batch = self._batch(indices)
            with self.fabric.no_backward_sync(self.loss, enabled=index < len(mine) - 1):
                # Gradients are averaged over the processes; the factor makes that a sum.
                loss = self.loss(batch.source, batch.inputs, batch.labels) * (self.fabric.world_size / tokens)
                self.fabric.backward(loss)
            total += float(loss.detach())
        if self.recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._rate()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    def _seed_step(self) -> None:
        """Dropout depends on seed, step and process alone: a resumed training draws what the first one would have drawn."""
        draw = random.Random(f"{self.recipe.seed}/{self.position.step}/{self.fabric.global_rank}")
        torch.manual_seed(draw.getrandbits(63))

    def _batch(self, indices: list[int]) -> Batch:
        config = self.model.config
        return collate([self.corpus.train[i] for i in indices], config.pad_id, config.bos_id).to(self.fabric.device)

    def _plan(self, epoch: int) -> list[list[list[int]]]:
        return plan_steps(plan_batches(self.corpus.train, self.recipe.batch_tokens, self.recipe.seed, epoch), self.per_step)

    def _rate(self) -> float:
        return self.recipe.learning_rate * self.schedule(self.position.step)

    def _end_epoch(self, progress: TrainingProgress, meter: "_Meter") -> None:
        if self.fabric.is_global_zero:
            self._save_checkpoint(self.folder.epoch(self.position.epoch))
            result = self._validate()
            self._log("epoch", train_loss=meter.loss if meter.tokens else None, valid_loss=result.loss, valid_bleu=result.bleu)
            draw_losses(self.folder.records(), self.folder.plot)
            progress.say(
                f"epoch {self.position.epoch}: training loss {meter.loss:.3f}, validation loss {result.loss:.3f}, "
                f"BLEU {result.bleu:.2f}, {self.position.seconds / 60:.1f} min"
            )
        self._save_state()

    def _finish(self, progress: TrainingProgress) -> Path:
        last = range(max(1, self.recipe.epochs - self.recipe.average + 1), self.recipe.epochs + 1)
        if self.fabric.is_global_zero:
            load_weights(self.model, average_weights([self.folder.epoch(n) for n in last]), self.folder.model)
            result = self._validate()
            self._log("final", valid_loss=result.loss, valid_bleu=result.bleu, averaged_epochs=len(last))
            self._save_checkpoint(self.folder.model, result)
            progress.say(f"{self.folder.model}: mean of {len(last)} epochs, loss {result.loss:.3f}, BLEU {result.bleu:.2f}")
        self.fabric.barrier()
        return self.folder.model

    def _validate(self) -> Validation:
        return validate(self.model, self.tokenizer, self.corpus.valid_pairs, self.corpus.valid, self.recipe.batch_tokens)

    def _save_checkpoint(self, path: Path, result: Validation | None = None) -> None:
        provenance: dict[str, Any] = {
            "recipe": asdict(self.recipe),
            "epochs": self.position.epoch,
            "steps": self.position.step,
            "training_pairs": len(self.corpus.train),
            "training_seconds": round(self.position.seconds),
            "torch": torch.__version__,
        }
        if result:
            provenance["metrics"] = asdict(result)
        languages = self.recipe.source_language, self.recipe.target_language
        samples = self.corpus.valid_pairs[:SAMPLE_PAIRS] if result else ()
        save_checkpoint(Checkpoint(self.model, self.tokenizer, *languages, provenance, samples), path)

    def _log(self, kind: str, **values: float | None) -> None:
        if self.fabric.is_global_zero:
            position = asdict(self.position)
            self.folder.log({"kind": kind, **position, **values})

    def _save_state(self) -> None:
        if self.fabric.is_global_zero:
            self.folder.save_state(
                {
                    "model": self.model.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
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
            return
        try:
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{self.folder.state}: is not of this model and recipe ({error})") from error
        self.position = Position(**state["position"])
        if (before := state.get("batches_per_step", self.per_step)) != self.per_step:
            raise RecipeError(
                f"resume: {self.folder.root} took {before} batches an optimizer step, now it would be {self.per_step}; "
                f"keep accumulate x processes as it was"
            )


class _Meter:
    """Smoothed loss and speed for people to look at."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.speed = 0.0
        self.tokens = 0
        self._weight = 0.0

    def add(self, loss: float, tokens: int, seconds: float) -> None:
        """Take in one step."""
        self.tokens += tokens
        self._weight = 0.98 * self._weight + 0.02
        share = 0.02 / self._weight
        self.loss += share * (loss - self.loss)
        self.speed += share * (tokens / max(seconds, 1e-9) - self.speed)


def _prepare(fabric: Fabric, recipe: Recipe, shape: TransformerConfig, folder: RunFolder) -> tuple[Tokenizer, Corpus]:
    pairs, valid_pairs = read_pairs(recipe.train), read_pairs(recipe.valid)
    if fabric.is_global_zero:
        folder.begin()
        if not folder.tokenizer.exists():
            learned = train_tokenizer((text for pair in pairs for text in pair), recipe.vocabulary_size)
            save_tokenizer(learned, folder.tokenizer)
    fabric.barrier()
    tokenizer = load_tokenizer(folder.tokenizer)
    limit = min(recipe.max_length, shape.max_positions, recipe.batch_tokens)
    train = [example for example in encode_pairs(tokenizer, pairs) if example.size() <= limit]
    if not train:
        raise RecipeError(f"max_length: no training pair has at most {limit} tokens")
    known = zip(valid_pairs, encode_pairs(tokenizer, valid_pairs), strict=True)
    valid = [(pair, example) for pair, example in known if example.size() <= shape.max_positions]
    if not valid:
        raise RecipeError(f"max_positions: no validation pair has at most {shape.max_positions} tokens")
    if fabric.is_global_zero and not folder.metrics.exists():
        _note(folder, "pairs_left_out", len(pairs) - len(train), limit)
        _note(folder, "valid_pairs_left_out", len(valid_pairs) - len(valid), shape.max_positions)
    return tokenizer, Corpus(train, [example for _, example in valid], [pair for pair, _ in valid])


def _note(folder: RunFolder, what: str, count: int, limit: int) -> None:
    if count:
        folder.log({"kind": "note", "step": 0, what: count, "longer_than_tokens": limit})


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[Example]:
    """Ids of both sides, EOS last."""
    sources = tokenizer.encode_batch([source for source, _ in pairs])
    targets = tokenizer.encode_batch([target for _, target in pairs])
    return [Example(source.ids, target.ids) for source, target in zip(sources, targets, strict=True)]


def _make_fabric(recipe: Recipe) -> Fabric:
    """One process a device; `torchrun` has started its processes already, on one machine or several."""
    devices, machines = recipe.devices, 1
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        devices, machines = (str(here) if devices == "auto" else devices), everywhere // here
    try:
        return Fabric(accelerator="auto", devices=devices, num_nodes=machines, precision=_precision(recipe))
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise RecipeError(f"devices: {recipe.devices!r} cannot be used: {error}") from error


def _precision(recipe: Recipe) -> Any:
    bf16 = recipe.precision == "bf16" or (recipe.precision == "auto" and torch.cuda.is_available())
    return "bf16-mixed" if bf16 else "32-true"
