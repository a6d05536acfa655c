"""Greedy decoding in PyTorch with a key/value cache: the reference for exported graphs."""

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor

from triptych_training.data.batches import Ids, Row, by_length, pad
from triptych_training.models.rnn import TranslationModel

DECODE_TOKENS = 4_000  # padded source tokens per batch


@torch.inference_mode()
def greedy(
    model: TranslationModel, sources: Sequence[Row], max_length: int, prefix: Sequence[int] = (), suppressed: Sequence[int] = ()
) -> list[Ids]:
    """Translate each source (ids, EOS last) into at most `max_length` ids, EOS not included, in the order of the sources.

    Sources are batched by length. Does not change the model's mode: call `eval()` first. Every translation begins with
    `prefix`, which counts; `suppressed` ids are never generated, but may occur in the prefix.
    """
    results: list[Ids] = [[] for _ in sources]
    prefix = tuple(prefix[:max_length])
    for batch in by_length(sources, DECODE_TOKENS):
        device = model.projection.weight.device
        source = pad([sources[i] for i in batch], model.config.pad_id).to(device)
        rows = _greedy_batch(model, source, max_length, prefix, suppressed).tolist()
        for index, row in zip(batch, rows, strict=True):
            results[index] = [*prefix, *takewhile(lambda token: token != model.config.eos_id, row[len(prefix) :])]
    return results


def _greedy_batch(
    model: TranslationModel, source: Tensor, max_length: int, prefix: Sequence[int], suppressed: Sequence[int]
) -> Tensor:
    """`[B, S]` -> `[B, at most max_length]`; ids after a row's EOS are undefined."""
    mask = model.source_mask(source)
    memory = model.decoder.project_memory(model.encoder(source, mask))
    tokens = torch.full((len(source), 1), model.config.bos_id, device=source.device)
    done = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    past, output = None, []
    for position in range(max_length):
        hidden, past = model.decoder.step(tokens, position, memory, mask, past)
        if position < len(prefix):
            tokens = torch.full_like(tokens, prefix[position])
        else:
            logits = model.projection(hidden)
            logits[..., list(suppressed)] = -torch.inf
            tokens = logits.argmax(-1)
            done |= tokens[:, 0] == model.config.eos_id
        output.append(tokens)
        if bool(done.all()):
            break
    return torch.cat(output, dim=1)
