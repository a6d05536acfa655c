"""Choice of the cross-attention whose mean is a translation model's alignment, by agreement with a lexicon.

Attention of the last layer, averaged over all heads, is not the best alignment of every model (Garg et al. 2019). Given
translations are teacher-forced, and a head agrees on a target token if it attends most to a source token of which the lexicon
has this target among its likeliest. Each layer's best heads are joined one after the other; the best set of any layer wins if
it is better than the last layer's mean. Half of the pairs decide, the other half measures.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from triptych_export.parity.comparison import spread
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import AlignmentHeads
from triptych_training.data.corpus import Pair
from triptych_training.data.lexicon import Lexicon
from triptych_training.models.attention import CrossAttention, split_heads
from triptych_training.models.transformer import Transformer

PAIRS = 400  # that are read; pairs with long or untypical texts drop out
LONGEST = 60  # tokens of a side
LIKELIEST = 4  # targets of each source token that count
LEAST_GAIN = 0.005  # share of the tokens by which the choice must be better than the last layer's mean

Weights = NDArray[np.float32]  # [layers, heads, targets, sources]
Links = NDArray[np.bool_]  # [targets, sources]: the lexicon has the target among the likeliest of the source


@dataclass(frozen=True)
class AlignmentChoice:
    """The chosen heads, and the share of target tokens on which they and the last layer's mean agree with the lexicon."""

    heads: AlignmentHeads
    agreement: float
    of_last_layer: float

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the bundle."""
        return {
            "alignment_agreement_percent": round(100 * self.agreement, 2),
            "alignment_agreement_last_layer_percent": round(100 * self.of_last_layer, 2),
        }


def choose_alignment(source: TranslationSource, lexicon: Lexicon, pairs: Sequence[Pair]) -> AlignmentChoice | None:
    """Choose the heads of a model whose sources and targets share a vocabulary, that of the lexicon.

    Returns None if the lexicon says too little about the pairs.
    """
    assert isinstance(source.model, Transformer)
    config = source.model.config
    found: list[tuple[Weights, Links]] = []
    for text, translation in spread(pairs, PAIRS):
        ids, answer = source.tokenizer.encode(text).ids, source.tokenizer.encode(translation).ids
        if max(len(ids), len(answer)) > min(LONGEST, source.max_source, source.max_target):
            continue
        links = np.stack([np.isin(answer, lexicon.of(token)[:LIKELIEST]) for token in ids], axis=1)
        links[-1] = links[:, -1] = False  # ends of sentences
        known = links.any(1)
        if known.any():
            found.append((cross_attention(source.model, ids, [config.bos_id, *answer[:-1]])[:, :, known], links[known]))
    if len(found) < 2:
        return None
    last = AlignmentHeads(config.decoder_layers - 1, tuple(range(config.decoder_block.heads)))
    chosen = _best(found[::2], last)
    return AlignmentChoice(chosen, agreement(found[1::2], chosen), agreement(found[1::2], last))


def agreement(found: Sequence[tuple[Weights, Links]], chosen: AlignmentHeads) -> float:
    """Share of target tokens for which the mean of some heads is largest at a source token that the lexicon links to them."""
    hits = [
        links[np.arange(len(links)), weights[chosen.layer, list(chosen.heads)].mean(0).argmax(-1)] for weights, links in found
    ]
    return float(np.concatenate(hits).mean())


def _best(found: Sequence[tuple[Weights, Links]], last: AlignmentHeads) -> AlignmentHeads:
    """Return the best set of heads of a layer, or the last layer's mean where that is about as good."""
    layers, heads = found[0][0].shape[:2]
    best, score = last, agreement(found, last) + LEAST_GAIN
    for layer in range(layers):
        alone = [agreement(found, AlignmentHeads(layer, (head,))) for head in range(heads)]
        order = sorted(range(heads), key=lambda head: -alone[head])
        for count in range(1, heads + 1):
            heads_together = AlignmentHeads(layer, tuple(sorted(order[:count])))
            if (reached := agreement(found, heads_together)) > score:
                best, score = heads_together, reached
    return best


@torch.inference_mode()
def cross_attention(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Weights:
    """Compute the cross-attention weights of one pair; `target` begins with the decoder's start."""
    seen: list[torch.Tensor] = []

    def watch(module: nn.Module, arguments: tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]], _: object) -> None:
        assert isinstance(module, CrossAttention)
        x, (key, _) = arguments[:2]
        query = split_heads(module.query(x), module.heads)
        seen.append(torch.softmax(query @ key.transpose(-2, -1) * module.scale, dim=-1)[0])

    with ExitStack() as hooks:
        for module in model.decoder.modules():
            if isinstance(module, CrossAttention):
                hooks.enter_context(module.register_forward_hook(watch))
        model.hidden(torch.tensor([list(source)]), torch.tensor([list(target)]))
    weights: Weights = torch.stack(seen).numpy()
    return weights
