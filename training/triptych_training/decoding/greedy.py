"""Greedy decoding in PyTorch with a growing key/value cache: the reference that exported graphs must equal."""

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych_training.data.batches import Ids, by_length, pad
from triptych_training.models.transformer import Transformer

DECODE_TOKENS = 4_000  # padded source tokens of one batch


@torch.inference_mode()
def greedy(
    model: Transformer, sources: Sequence[Ids], max_length: int, prefix: Sequence[int] = (), suppressed: Sequence[int] = ()
) -> list[Ids]:
    """Translate each source (ids, EOS last) into at most `max_length` ids, EOS not included.

    Order is kept; sources are batched by length. The model stays in the mode it is in: call `eval()` first.

    Args:
        model: decodes.
        sources: frames included, where the model wants any.
        max_length: counts the prefix.
        prefix: ids that every translation begins with; part of the results.
        suppressed: ids that are never given, but in a prefix.
    """
    results: list[Ids] = [[] for _ in sources]
    prefix = tuple(prefix[:max_length])
    for batch in by_length(sources, DECODE_TOKENS):
        device = model.projection.weight.device
        source = pad([list(sources[i]) for i in batch], model.config.pad_id).to(device)
        rows = _greedy_batch(model, source, max_length, prefix, suppressed).tolist()
        for index, row in zip(batch, rows, strict=True):
            results[index] = [*prefix, *_until(row[len(prefix) :], model.config.eos_id)]
    return results


def _greedy_batch(
    model: Transformer, source: Tensor, max_length: int, prefix: Sequence[int], suppressed: Sequence[int]
) -> Tensor:
    """`[B, S]` -> `[B, at most max_length]`; after its EOS a row's ids mean nothing."""
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


def _until(row: Ids, end: int) -> Ids:
    return row[: row.index(end)] if end in row else row
