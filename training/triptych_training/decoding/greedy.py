"""Greedy decoding in PyTorch with a key/value cache: the reference for exported graphs."""

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor
from torch.nn import functional

from triptych_training.data.batches import Ids, Row, by_length, pad
from triptych_training.models.rnn import TranslationModel

DECODE_TOKENS = 4_000  # padded source tokens per batch
FREE = -1  # in place of a prefix's token: the likeliest one is taken


@torch.inference_mode()
def greedy(
    model: TranslationModel,
    sources: Sequence[Row],
    max_length: int,
    prefixes: Sequence[Sequence[int]] = (),
    suppressed: Sequence[int] = (),
) -> list[Ids]:
    """Translate each source (ids, EOS last) into at most `max_length` ids, EOS not included, in the order of the sources.

    Sources are batched by length. Does not change the model's mode: call `eval()` first. `prefixes` are empty, or have one for
    each source: its translation begins with it. `suppressed` ids are never generated, but may occur in a prefix.
    """
    results: list[Ids] = [[] for _ in sources]
    starts = [[*prefix[:max_length]] for prefix in prefixes] or [[] for _ in sources]
    for batch in by_length(sources, DECODE_TOKENS):
        device = model.projection.weight.device
        source = pad([sources[i] for i in batch], model.config.pad_id).to(device)
        forced = pad([starts[i] for i in batch], FREE).to(device)
        rows = _greedy_batch(model, source, max_length, forced, suppressed).tolist()
        for index, row in zip(batch, rows, strict=True):
            free = row[len(starts[index]) :]
            results[index] = [*starts[index], *takewhile(lambda token: token != model.config.eos_id, free)]
    return results


def _greedy_batch(
    model: TranslationModel, source: Tensor, max_length: int, forced: Tensor, suppressed: Sequence[int]
) -> Tensor:
    """`[B, S]`, with prefixes `[B, P]` -> `[B, at most max_length]`; ids after a row's EOS are undefined."""
    mask = model.source_mask(source)
    memory = model.decoder.project_memory(model.encoder(source, mask))
    tokens = torch.full((len(source), 1), model.config.bos_id, device=source.device)
    done = torch.zeros_like(tokens, dtype=torch.bool)
    forced = functional.pad(forced, (0, max_length - forced.shape[1]), value=FREE)
    past, output = None, []
    for position in range(max_length):
        hidden, past = model.decoder.step(tokens, position, memory, mask, past)
        logits = model.projection(hidden)
        logits[..., list(suppressed)] = -torch.inf
        given = forced[:, position : position + 1]
        tokens = torch.where(given == FREE, logits.argmax(-1), given)
        done |= (given == FREE) & (tokens == model.config.eos_id)
        output.append(tokens)
        if bool(done.all()):
            break
    return torch.cat(output, dim=1)
