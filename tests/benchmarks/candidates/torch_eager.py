"""PyTorch in eager mode, with preallocated key/value caches; cross-attention keys and values are computed once."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from candidates.candidate import Answer, Candidate, Decoding, answers_of
from triptych_training.checkpoints.translation import Checkpoint
from triptych_training.data.batches import pad
from triptych_training.models.attention import KeyValues, merge_heads
from triptych_training.models.transformer import DecoderLayer


class EagerTorch(Candidate):
    """Eager PyTorch, greedy, fp32; a call is one padded batch that ends with its longest translation."""

    name, family = "PyTorch", "PyTorch"
    searches_beams = False

    def __init__(self, checkpoint: Checkpoint, cpus: int) -> None:
        self._model, self._tokenizer = checkpoint.model, checkpoint.tokenizer
        torch.set_num_threads(cpus)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        sources = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        config = self._model.config
        return answers_of(self._tokenizer, self._decode(pad(sources, config.pad_id), decoding).tolist(), config.eos_id)

    @torch.inference_mode()
    def _decode(self, source: Tensor, decoding: Decoding) -> Tensor:
        """Decode `[B, S]` into `[B, at most limit]`; ids after a row's end are meaningless."""
        model = self._model
        mask = model.source_mask(source)
        memory = model.decoder.project_memory(model.encoder(source, mask))
        caches = [_buffers(keys, decoding.limit) for keys, _ in memory]
        tokens = torch.full((len(source), 1), model.config.bos_id)
        done = torch.zeros(len(source), 1, dtype=torch.bool)
        output = []
        for position in range(decoding.limit):
            tokens = self._step(tokens, position, memory, mask, caches).argmax(-1)
            output.append(tokens)
            done |= tokens == model.config.eos_id
            if bool(done.all()):
                break
        return torch.cat(output, dim=1)

    def _step(
        self, tokens: Tensor, position: int, memory: Sequence[KeyValues], mask: Tensor, caches: Sequence[KeyValues]
    ) -> Tensor:
        """Return logits `[B, 1, V]` for tokens `[B, 1]` at `position`, and extend the caches."""
        decoder = self._model.decoder
        x = decoder.embedding(tokens, position)
        for layer, keys_values, cache in zip(decoder.layers, memory, caches, strict=True):
            assert isinstance(layer, DecoderLayer)
            y = _attend(layer, layer.attention_residual.enter(x), position, cache)
            x = layer.after_attention(layer.attention_residual.leave(x, y), keys_values, mask)
        logits: Tensor = self._model.projection(decoder.norm(x))
        return logits


def _attend(layer: DecoderLayer, x: Tensor, position: int, cache: KeyValues) -> Tensor:
    query, *new = layer.attention.project(x)
    for buffer, values in zip(cache, new, strict=True):
        buffer[:, :, position] = values[:, :, 0]
    key, value = (buffer[:, :, : position + 1] for buffer in cache)
    output: Tensor = layer.attention.output(merge_heads(functional.scaled_dot_product_attention(query, key, value)))
    return output


def _buffers(like: Tensor, positions: int) -> KeyValues:
    rows, heads, _, size = like.shape
    return torch.empty(rows, heads, positions, size), torch.empty(rows, heads, positions, size)
