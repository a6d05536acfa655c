"""Formulas in place of a device's graphs: a row's next token depends on its source and on all tokens so far.

Both are read from the row's memory and cache: rows that are mixed up, moved incompletely or overwritten give other tokens.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import DecoderShape, Limits, SpecialTokens, TranslationManifest
from triptych_serving.decoding.cuda.greedy_lane import DeviceGreedyLane
from triptych_serving.decoding.cuda.kv_cache import DeviceKVCache, Prefill, memory_shape
from triptych_serving.decoding.cuda.slots import DeviceSlots
from triptych_serving.decoding.kv_cache import cache_lengths, cache_names
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import DeviceArray, host_view
from triptych_serving.runtime.session import UNCAPTURED

from .lagging_memory import LaggingMemory

VOCABULARY = 97
PAD, START, END = 0, 1, 2
TOKENS = SpecialTokens(PAD, START, END)
TARGETS, SOURCES = 24, 20  # positions
SHAPE = DecoderShape(layers=2, heads=2, head_dim=2)
POISON = 1001  # first token of a source that makes its first step fail
INDIGESTIBLE = 1002  # first token of a source that cannot be encoded
GARBAGE = 1999.0  # after a source's end
CONFUSED = 1998  # token of a slot whose layers or heads disagree, as those of an empty slot may
CAPTURE_RUNS = 3  # times that capturing runs a graph

Views = dict[str, NDArray[Any]]


def next_token(source: Sequence[int], history: Sequence[int]) -> int:
    """Return the token after `history` for a source."""
    value = 7
    for token in (*source, -1, *history):
        value = (value * 31 + token + 5) % 1_000_003
    return END if value % 9 == 0 else value % VOCABULARY


def decode(source: Sequence[int], max_tokens: int, prefix: Sequence[int] = ()) -> list[int]:
    """Return all tokens of a source that is decoded alone."""
    said: list[int] = []
    while len(said) < max_tokens:
        token = prefix[len(said)] if len(said) < len(prefix) else next_token(source, said)
        if token == END:
            break
        said.append(token)
    return said


class FormulaEncoder:
    """Graph `source, lengths -> memory [2L, B, 1, S, H * D]`: the source's ids everywhere, and garbage after its end."""

    def __init__(self, memory: LaggingMemory) -> None:
        self._memory = memory
        self.shapes: list[tuple[int, ...]] = []

    def dtype(self, name: str) -> np.dtype[Any]:
        assert name == "lengths"
        return np.dtype(np.int32)

    def bind(self, inputs: Mapping[str, DeviceArray], outputs: Mapping[str, DeviceArray]) -> "FormulaRun":
        return FormulaRun(self._memory, inputs, outputs, self._encode)

    def _encode(self, inputs: Views, outputs: Views) -> None:
        source, lengths, memory = inputs["source"], inputs["lengths"], outputs["memory"]
        self.shapes.append(source.shape)
        if (source[:, 0] == INDIGESTIBLE).any():
            raise RuntimeError("cannot encode")
        assert memory.shape[1:4:2] == source.shape
        assert (lengths > 0).all()
        memory[...] = source[None, :, None, :, None]
        for row, length in enumerate(lengths):
            memory[:, row, :, length:] = GARBAGE


class FormulaStep:
    """The step graph."""

    def __init__(self, memory: LaggingMemory) -> None:
        self._memory = memory
        self.rows: list[int] = []  # of each run
        self.captured: dict[int, tuple[FormulaRun, int]] = {}

    def shape(self, name: str) -> tuple[int | str, ...]:
        assert name == "memory_key_0"
        return "batch", 1, "source", SHAPE.heads * SHAPE.head_dim

    def bind(self, inputs: Mapping[str, DeviceArray], outputs: Mapping[str, DeviceArray]) -> "FormulaRun":
        caches = [(f"cache_{name}", f"present_{name}") for name in cache_names(SHAPE.layers)]
        for read, written in (("tokens", "next"), ("positions", "advanced"), *caches):
            assert inputs[read].address == outputs[written].address
            assert inputs[read].shape == outputs[written].shape
        assert [inputs[name].dtype for name in ("tokens", "positions", "lengths", "forced")] == ["i8", "i4", "i8", "i8"]
        return FormulaRun(self._memory, inputs, outputs, self._step, self.captured)

    def _step(self, inputs: Views, outputs: Views) -> None:
        tokens, positions, lengths = inputs["tokens"], inputs["positions"], inputs["lengths"]
        self.rows.append(len(tokens))
        assert (lengths > 0).all()
        [cache, *others] = [array for name, array in inputs.items() if name.startswith("cache_")]  # [B, H, T, D]
        [memory, *more] = [array for name, array in inputs.items() if name.startswith("memory_")]  # [B, 1, S, H * D]
        rows = np.arange(len(tokens))
        for each in (cache, *others):
            each[rows, :, positions] = tokens[:, None, None]
        said, poisoned = np.zeros_like(tokens), False
        for row, (position, length) in enumerate(zip(positions.tolist(), lengths.tolist(), strict=True)):
            source, history = memory[row, 0, :length], cache[row, :, 1 : position + 1]
            whole = (source == source[:, :1]).all() and (history == history[:1, :, :1]).all()
            whole = whole and all(np.array_equal(source, each[row, 0, :length]) for each in more)
            whole = whole and all(np.array_equal(history, each[row, :, 1 : position + 1]) for each in others)
            forced, known = int(inputs["forced"][row]), _ids(source[:, 0])
            free = next_token(known, _ids(history[0, :, 0])) if whole else CONFUSED
            said[row] = free if forced < 0 else forced
            poisoned = poisoned or (known[0] == POISON and position == 0)
        outputs["next"][...] = said
        outputs["advanced"][...] = np.minimum(positions + 1, TARGETS - 1)
        if poisoned:
            raise RuntimeError("cannot step")


class FormulaRun:
    """A graph over bound arrays, which runs when the memory executes it.

    Args:
        memory: of its stream.
        inputs: by name.
        outputs: by name.
        work: called with views of both.
        captured: captured runs and their threads, by number; None: capturing is not allowed.
    """

    def __init__(
        self,
        memory: LaggingMemory,
        inputs: Mapping[str, DeviceArray],
        outputs: Mapping[str, DeviceArray],
        work: Any,
        captured: "dict[int, tuple[FormulaRun, int]] | None" = None,
    ) -> None:
        self._memory, self._work, self._captured = memory, work, captured
        self._inputs = {name: host_view(array) for name, array in inputs.items()}
        self._outputs = {name: host_view(array) for name, array in outputs.items()}

    def run(self, graph: int | None = None) -> None:
        assert graph is not None
        times = 1
        if self._captured is None:
            assert graph == UNCAPTURED
        elif self._memory.device.kind == "cuda":
            times = self._replay(self._captured, graph)
        for _ in range(times):
            self._memory.ask(lambda: self._work(self._inputs, self._outputs))

    def _replay(self, captured: "dict[int, tuple[FormulaRun, int]]", graph: int) -> int:
        """Return the number of runs: more than one when the graph is captured."""
        if graph not in captured:
            assert CUDA_GRAPH_LOCK._capturing, "a graph is captured beside other threads"
            captured[graph] = self, threading.get_ident()
            return CAPTURE_RUNS
        assert captured[graph] == (self, threading.get_ident())
        return 1


def _ids(values: NDArray[Any]) -> tuple[int, ...]:
    return tuple(map(int, values.tolist()))


def small(manifest: TranslationManifest) -> TranslationManifest:
    """Return the manifest with these graphs' shapes and limits."""
    return replace(manifest, decoder=SHAPE, limits=Limits(SOURCES, TARGETS), tokens=TOKENS)


def make_lane(manifest: TranslationManifest, memory: LaggingMemory, count: int) -> tuple[DeviceGreedyLane, FormulaStep]:
    """Make a lane over the formulas, and return it with its step graph."""
    manifest, step = small(manifest), FormulaStep(memory)
    encoder: Any = FormulaEncoder(memory)
    graph: Any = step
    prefill = Prefill(encoder, cache_lengths(manifest.limits)[1], memory_shape(graph, manifest.decoder), memory)
    caches = DeviceKVCache(prefill, graph, manifest, count, memory)
    return DeviceGreedyLane(DeviceSlots(caches, graph, START, memory), TOKENS, memory), step
