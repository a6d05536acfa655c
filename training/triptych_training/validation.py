"""How good a model is: loss and sacreBLEU on sentence pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import sacrebleu
import torch
from tokenizers import Tokenizer

from triptych_training.batches import Example, collate, plan_batches
from triptych_training.corpus import Pair
from triptych_training.greedy import greedy
from triptych_training.loss import SequenceLoss
from triptych_training.transformer import Transformer


@dataclass(frozen=True)
class Validation:
    """Loss in nats a token, cased sacreBLEU of greedy translations."""

    loss: float
    bleu: float


def validate(
    model: Transformer, tokenizer: Tokenizer, pairs: Sequence[Pair], examples: Sequence[Example], batch_tokens: int
) -> Validation:
    """Measure `model`; leaves it in training mode."""
    model.eval()
    try:
        return Validation(_loss(model, examples, batch_tokens), bleu(model, tokenizer, pairs, examples).score)
    finally:
        model.train()


def bleu(
    model: Transformer, tokenizer: Tokenizer, pairs: Sequence[Pair], examples: Sequence[Example]
) -> sacrebleu.metrics.bleu.BLEUScore:
    """Greedy translations against the pairs' targets."""
    limit = model.config.max_positions - 1
    outputs = greedy(model, [example.source for example in examples], min(limit, 256))
    return sacrebleu.corpus_bleu(tokenizer.decode_batch(outputs), [[target for _, target in pairs]])


@torch.inference_mode()
def _loss(model: Transformer, examples: Sequence[Example], batch_tokens: int) -> float:
    total, tokens = 0.0, 0
    loss = SequenceLoss(model, smoothing=0.0)
    for indices in plan_batches(examples, batch_tokens, seed=0, epoch=0):
        batch = collate([examples[i] for i in indices], model.config.pad_id, model.config.bos_id)
        batch = batch.to(model.projection.weight.device)
        total += float(loss(batch.source, batch.inputs, batch.labels))
        tokens += batch.tokens
    return total / max(1, tokens)
