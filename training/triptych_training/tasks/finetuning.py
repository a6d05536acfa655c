"""Fine-tuning: a head on top of a pre-trained BERT (Devlin et al. 2018, section 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.checkpoints.encoder import TextCheckpoint, load_bert_checkpoint, make_bert, save_bert_checkpoint
from triptych_training.data.batches import Indices, pad, plan_batches
from triptych_training.errors import RecipeError
from triptych_training.evaluation.metrics import merge, share, total
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import FinetuningRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.bert import EncoderModel
from triptych_training.models.elmo import Elmo
from triptych_training.models.word2vec import StaticEmbedding
from triptych_training.tasks.heads import IGNORED, Head, LabelledExample, make_head

SAMPLES = 300  # validation inputs stored with the final checkpoint
SHOWN_LABELS = 10  # named in the first line of a training


def finetune(recipe: FinetuningRecipe, out: Path, resume: bool = False) -> Path:
    """Train a head and its encoder in the run folder `out`; returns the final checkpoint folder.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    encoder = load_bert_checkpoint(Path(recipe.encoder))
    assert not isinstance(encoder.model, StaticEmbedding | Elmo)
    config = replace(encoder.model.config, dropout=recipe.dropout)
    if recipe.max_length > config.max_positions:
        raise RecipeError(f"max_length: {recipe.max_length} is above the encoder's max_positions {config.max_positions}")
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "bert", config, resume)
    folder.prepare_tokenizer(fabric, lambda: encoder.tokenizer)
    head = make_head(recipe.head, recipe.train, recipe.stride)
    model = make_bert(recipe.head, config, len(head.labels))
    model.bert.load_state_dict(encoder.model.bert.state_dict())
    task = FinetuningTask(recipe, head, model, encoder.tokenizer)
    if fabric.is_global_zero:
        folder.note("valid_inputs_left_out", task.valid_left_out, task.limit)
        folder.note("inputs_left_out", task.train_left_out, task.limit)
    return Trainer(fabric, recipe, folder, task).run()


class FinetuningTask:
    """Fine-tuning of one head on labelled text; the head defines the unit."""

    def __init__(self, recipe: FinetuningRecipe, head: Head, model: EncoderModel, tokenizer: Tokenizer) -> None:
        self.recipe, self.head, self.model, self.tokenizer = recipe, head, model, tokenizer
        self.unit, self.headline, self.labels = head.unit, head.headline, head.labels
        limit = self.limit = min(recipe.max_length or model.config.max_positions, recipe.batch_tokens)
        self.train, self.train_left_out = head.examples(tokenizer, recipe.train, limit)  # and how many were too long
        # Validation last: the head's metrics refer to the files read last.
        self.valid, self.valid_left_out = head.examples(tokenizer, recipe.valid, limit)
        for name, examples in (("train", self.train), ("valid", self.valid)):
            if not examples:
                raise RecipeError(f"max_length: no input of the {name} files has at most {limit} tokens")

    def describe(self) -> str:
        return f"{len(self.train):,} inputs{self._labels()}"

    def _labels(self) -> str:
        """Count and name the labels: a table's heading or numbers that were read as labels are seen at once."""
        labels = self.head.labels
        named = ", ".join(labels[:SHOWN_LABELS]) + ", ..." * (len(labels) > SHOWN_LABELS)
        return f", {len(labels)} labels ({named})" if labels else ""

    def plan(self, epoch: int) -> list[Indices]:
        return self._plan(self.train, f"{self.recipe.seed}/{epoch}")

    def weight(self, indices: Indices) -> int:
        return sum(self.head.weight(self.train[i]) for i in indices)

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        return self._collate([self.train[i] for i in indices])

    def loss(self, ids: Tensor, segments: Tensor, targets: Tensor) -> Tensor:
        return self.head.loss(self.model, ids, segments, targets, self.recipe.label_smoothing)

    def validate(self) -> Mapping[str, float]:
        """Measure the loss and the head's metrics."""
        device = next(self.model.parameters()).device
        loss, weight = 0.0, 0.0
        predictions: dict[int, Any] = {}
        for indices in share(self._plan(self.valid, "valid")):
            ids, segments, targets = (tensor.to(device) for tensor in self._collate([self.valid[i] for i in indices]))
            loss += float(self.head.loss(self.model, ids, segments, targets, 0.0))
            weight += sum(self.head.weight(self.valid[i]) for i in indices)
            rows = self.model(ids, segments)
            rows = list(zip(*rows, strict=True)) if isinstance(rows, tuple) else list(rows)
            predictions |= {i: self.head.predict(row, self.valid[i]) for i, row in zip(indices, rows, strict=True)}
        loss, weight = total(loss, weight)
        return {"loss": loss / max(1, weight), **self.head.metrics(merge(predictions), self.valid)}

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        samples = self.head.samples()[:SAMPLES] if final else ()
        pairs = self.head.pairs
        save_bert_checkpoint(TextCheckpoint(self.model, self.tokenizer, self.head.labels, provenance, samples, pairs), folder)

    def _plan(self, examples: Sequence[LabelledExample], seed: str) -> list[Indices]:
        sizes = np.array([len(example.ids) for example in examples], np.int64)[:, None]
        return plan_batches(sizes, self.recipe.batch_tokens, seed)

    def _collate(self, examples: Sequence[LabelledExample]) -> tuple[Tensor, ...]:
        ids = pad([example.ids for example in examples], self.model.config.pad_id)
        segments = pad([example.segments for example in examples], 0)
        return ids, segments, pad([example.target for example in examples], IGNORED)
