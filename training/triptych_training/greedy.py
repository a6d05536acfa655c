"""Greedy decoding in PyTorch with a growing key/value cache: the reference that exported graphs must equal."""

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych_training.batches import Ids, by_length, pad
from triptych_training.transformer import Transformer

DECODE_TOKENS = 4_000  # padded source tokens of one batch


@torch.inference_mode()
def greedy(model: Transformer, sources: Sequence[Ids], max_length: int) -> list[Ids]:
    """Translate each source (ids, EOS last) into at most `max_length` ids, EOS not included.

    Order is kept; sources are batched by length. The model stays in the mode it is in: call `eval()` first.
    """
    results: list[Ids] = [[] for _ in sources]
    for batch in by_length(sources, DECODE_TOKENS):
        device = model.projection.weight.device
        source = pad([sources[i] for i in batch], model.config.pad_id).to(device)
        for index, row in zip(batch, _greedy_batch(model, source, max_length).tolist(), strict=True):
            results[index] = row[: row.index(model.config.eos_id)] if model.config.eos_id in row else row
    return results


def _greedy_batch(model: Transformer, source: Tensor, max_length: int) -> Tensor:
    """`[B, S]` -> `[B, at most max_length]`; after its EOS a row's ids mean nothing."""
    mask = model.source_mask(source)
    memory = model.decoder.project_memory(model.encoder(source, mask))
    tokens = torch.full((len(source), 1), model.config.bos_id, device=source.device)
    done = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    past, output = None, []
    for position in range(max_length):
        hidden, past = model.decoder.step(tokens, position, memory, mask, past)
        tokens = model.projection(hidden).argmax(-1)
        output.append(tokens)
        done |= tokens[:, 0] == model.config.eos_id
        if bool(done.all()):
            break
    return torch.cat(output, dim=1)
