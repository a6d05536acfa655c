"""PyTorch at its best: fp16, scaled dot-product attention over static caches, torch.compile, the whole step as a CUDA graph.

The layers are the project's own. Positions are inputs, so that one captured graph serves every step. The encoder is compiled
once for all shapes and captured for sources padded to a multiple of 16. Tokens stay on the device; the end of all rows is
checked every eighth step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from candidates.candidate import Answer, Candidate, Decoding, answers_of
from triptych_training.checkpoints.translation import Checkpoint
from triptych_training.data.batches import pad
from triptych_training.models.attention import KeyValues, merge_heads
from triptych_training.models.transformer import DecoderLayer

SOURCE_STEP = 16  # lengths of padded sources are multiples of it
ROWS = (1, 8, 32, 64, 128, 256, 512, 1024)  # that a batch is filled up to
CHECK_STEPS = 8
WARM_RUNS = 3  # before a capture, as PyTorch asks for
MOST_SHAPES = 256  # that one function may be compiled for
Replay = Callable[[], object]


@dataclass(frozen=True)
class Buffers:
    """Inputs, outputs and caches of a batch of one shape, at fixed addresses."""

    source: Tensor  # [B, S]
    mask: Tensor  # [B, 1, 1, S], False on padding
    memory: Sequence[KeyValues]  # of each layer, [B, H, S, D]
    caches: Sequence[KeyValues]  # of each layer, [B, H, T, D]
    tokens: Tensor  # [B, 1], the last ones
    position: Tensor  # [1]
    places: Tensor  # [T], 0, 1, 2...
    output: Tensor  # [B, T]


@dataclass(frozen=True)
class Captured:
    """Buffers and captured graphs of one shape."""

    buffers: Buffers
    encode: Replay
    step: Replay


class CompiledTorch(Candidate):
    """Greedy; a call is one padded batch.

    Args:
        checkpoint: whose model is taken over: it is on another device and in fp16 afterwards.
        device: "cuda", "cuda:1", or "cpu", where fp32 is kept and nothing is captured.
        compiles: run torch.compile; without it a rehearsal is quick.
    """

    name, family = "PyTorch compiled", "PyTorch"
    searches_beams = False

    def __init__(self, checkpoint: Checkpoint, device: str, compiles: bool) -> None:
        self._device = torch.device(device)
        self._dtype = torch.float16 if self._device.type == "cuda" else torch.float32
        self._model = checkpoint.model.eval().to(self._device, self._dtype)
        self._tokenizer = checkpoint.tokenizer
        torch._dynamo.config.recompile_limit = MOST_SHAPES
        self._run_encoder = torch.compile(self._encode, dynamic=True) if compiles else self._encode
        self._run_step = torch.compile(self._step, dynamic=False, fullgraph=True) if compiles else self._step
        self._ready: dict[tuple[int, int, int], Captured] = {}
        self.settings = "SDPA, static cache" + (", torch.compile" if compiles else "")
        self.settings += ", CUDA graphs" if self._device.type == "cuda" else ""

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        config = self._model.config
        sources = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        return answers_of(self._tokenizer, self._decode(pad(sources, config.pad_id), decoding).tolist(), config.eos_id)

    @torch.inference_mode()
    def _decode(self, source: Tensor, decoding: Decoding) -> Tensor:
        """`[B, S]` -> `[B, at most limit]` on the CPU; after its end a row's ids mean nothing."""
        real, length = source.shape
        rows = next((rows for rows in ROWS if rows >= real), real)
        shape = (rows, -(-length // SOURCE_STEP) * SOURCE_STEP, decoding.limit)
        if shape not in self._ready:
            self._ready[shape] = self._capture(self._buffers(*shape))
        captured, end = self._ready[shape], self._model.config.eos_id
        buffers = captured.buffers
        padded = functional.pad(source, (0, shape[1] - length), value=self._model.config.pad_id)
        buffers.source.fill_(end)  # rows that nobody asked for
        buffers.source[:real].copy_(padded)
        found = buffers.output[:real]
        buffers.tokens.fill_(self._model.config.bos_id)
        buffers.position.zero_()
        captured.encode()
        for step in range(1, decoding.limit + 1):
            captured.step()
            if step % CHECK_STEPS == 0 and bool((found[:, :step] == end).any(1).all()):
                return found[:, :step].cpu()
        return found.cpu()

    def _buffers(self, rows: int, length: int, limit: int) -> Buffers:
        block, layers = self._model.config.decoder_block, self._model.config.decoder_layers
        heads, size = block.attention.heads, block.attention.head_dim
        whole = partial(torch.zeros, device=self._device, dtype=torch.long)
        half = partial(torch.zeros, device=self._device, dtype=self._dtype)
        return Buffers(
            source=whole(rows, length),
            mask=torch.ones(rows, 1, 1, length, device=self._device, dtype=torch.bool),
            memory=[(half(rows, heads, length, size), half(rows, heads, length, size)) for _ in range(layers)],
            caches=[(half(rows, heads, limit, size), half(rows, heads, limit, size)) for _ in range(layers)],
            tokens=whole(rows, 1),
            position=whole(1),
            places=torch.arange(limit, device=self._device),
            output=whole(rows, limit),
        )

    def _capture(self, buffers: Buffers) -> Captured:
        buffers.source.fill_(self._model.config.eos_id)  # padding alone would make every attention one over nothing
        runs = [_replayed(partial(run, buffers), buffers.position) for run in (self._run_encoder, self._run_step)]
        return Captured(buffers, *runs)

    def _encode(self, buffers: Buffers) -> None:
        model = self._model
        buffers.mask.copy_(model.source_mask(buffers.source))
        projected = model.decoder.project_memory(model.encoder(buffers.source, buffers.mask))
        for targets, values in zip(buffers.memory, projected, strict=True):
            for target, value in zip(targets, values, strict=True):
                target.copy_(value)

    def _step(self, buffers: Buffers) -> None:
        """The next token of every row, into the output's column, the tokens, and the position after it."""
        model = self._model
        decoder, table = model.decoder, model.decoder.embedding.positions
        x = decoder.embedding.at(buffers.tokens, None if table is None else table.weight.index_select(0, buffers.position))
        seen = (buffers.places <= buffers.position)[None, None, None]
        for layer, memory, cache in zip(decoder.layers, buffers.memory, buffers.caches, strict=True):
            assert isinstance(layer, DecoderLayer)
            y = _attend(layer, layer.attention_residual.enter(x), buffers.position, cache, seen)
            x = layer.after_attention(layer.attention_residual.leave(x, y), memory, buffers.mask)
        best = model.projection(decoder.finish(x)).argmax(-1)
        buffers.tokens.copy_(best)
        buffers.output.index_copy_(1, buffers.position, best)
        buffers.position.add_(1)


def _attend(layer: DecoderLayer, x: Tensor, position: Tensor, cache: KeyValues, seen: Tensor) -> Tensor:
    attention = layer.attention
    query, *new = attention.project(x)
    for buffer, values in zip(cache, new, strict=True):
        buffer.index_copy_(2, position, values)
    context = functional.scaled_dot_product_attention(query, *cache, seen, scale=attention.scale)
    output: Tensor = attention.output(merge_heads(context))
    return output


def _replayed(run: Replay, position: Tensor) -> Replay:
    """The run as a CUDA graph; itself on the CPU. Warm-up runs must not leave the buffers, so they start over each time."""
    if position.device.type != "cuda":
        return run
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_RUNS):
            position.zero_()
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    position.zero_()
    with torch.cuda.graph(graph):
        run()
    return graph.replay
