"""Key-value caches of a lane's rows, and its encoder and step graphs over them. `KVCache` is what lanes need of any device."""

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from triptych_serving.bundle.manifest import Limits, TranslationManifest
from triptych_serving.runtime.arrays import sparse_zeros
from triptych_serving.runtime.native.library import Positions
from triptych_serving.runtime.session import Array, Session

OFFSETS = "offsets"  # optional input of encoders, `[tokens]` int64: added to the positions 0, 1, ...
PACKED_TOKENS = 512  # encoded together; measured with AVX512-VNNI: from 1,280 on, a token takes longer

# Runs a step graph over its arrays; then the host's output arrays hold the results. Raises EngineError: the runtime failed.
RunStep = Callable[[], None]


@dataclass(frozen=True)
class StepArrays:
    """Host arrays by the names of a graph's inputs and outputs: `[count, ...]`, or of another length."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)  # inputs that never change
    rare: Mapping[str, Array] = field(default_factory=dict)  # outputs that are read only after `KVCache.fetch`
    whole: Mapping[str, Array] = field(default_factory=dict)  # inputs that have no rows, whatever their length


class KVCache(Protocol):
    """Caches and encoded sources of `count` rows, in memory that is allocated once. Used by one thread."""

    @property
    def count(self) -> int:
        """Maximum number of rows."""

    @property
    def run_tokens(self) -> int:
        """Number of source tokens that take as long to encode as starting one more run of the encoder."""

    @property
    def bytes(self) -> int:
        """Allocated bytes."""

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """Allocate zeros on the host for an output of the graph."""

    def warm_up(self, run: Callable[[int], None]) -> None:
        """Call a function that runs the step graph, with each number of rows for which something is prepared."""

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        """Run the encoder for consecutive rows.

        Args:
            source: `[rows, longest]` ids, padded.
            lengths: `[rows]`.
            first: index of the first row.

        Raises:
            EngineError: the runtime failed.
        """

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        """Copy one row to another.

        Args:
            source: row.
            target: another row.
            positions: decoded tokens to copy.
            length: tokens of the encoded source to copy; 0: it is the same already.
        """

    def copy_rows(self, copies: Array) -> None:
        """Copy decoded tokens of many rows to others, in any order.

        Args:
            copies: `[copies, 5]` int64: source row and its first position, target row and its first position, which is the
                same, and the number of positions. No row is a source and a target, or twice a target.
        """

    def bind(self, arrays: StepArrays, rows: int) -> RunStep:
        """Bind the step graph to the first rows' caches and, of arrays that are `count` long, to the first rows."""

    def fetch(self, array: Array) -> None:
        """Copy one of the last run's rare outputs to the host."""


class HostArrays:
    """Arrays of `count` rows in host memory, bound to a step graph.

    Args:
        step: graph with at least `caches -> caches`.
        caches: by the graph's names of the caches, without their prefix; the graph changes them in place.
        memories: likewise encoded sources, which the graph only reads. With int8, an operator must return them, too.
    """

    def __init__(self, step: Session, caches: Mapping[str, Any], memories: Mapping[str, Array]) -> None:
        self._step, self._caches, self._memories = step, caches, memories
        self._returned = frozenset(step.outputs)
        self.count = next(iter(caches.values())).shape[0]

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in (*self._caches.values(), *self._memories.values()))

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        return np.zeros(shape, dtype)

    def warm_up(self, run: Callable[[int], None]) -> None:
        run(1)

    def bind(self, arrays: StepArrays, rows: int) -> RunStep:
        caches = {name: self._first(array, rows) for name, array in self._caches.items()}
        memories = {f"memory_{name}": array[:rows] for name, array in self._memories.items()}
        inputs = {
            **{name: self._active(array, rows) for name, array in {**arrays.inputs, **arrays.constants}.items()},
            **arrays.whole,
            **{f"cache_{name}": array for name, array in caches.items()},
            **memories,
        }
        outputs = {
            **{name: self._active(array, rows) for name, array in {**arrays.outputs, **arrays.rare}.items()},
            **{f"present_{name}": array for name, array in caches.items()},
            **{f"present_{name}": array for name, array in memories.items() if f"present_{name}" in self._returned},
        }
        return self._step.bind(inputs, outputs).run

    def fetch(self, array: Array) -> None:
        """Do nothing: all outputs are on the host."""

    def _active(self, array: Any, rows: int) -> Any:
        return self._first(array, rows) if array.shape[0] == self.count else array

    @staticmethod
    def _first(array: Any, rows: int) -> Any:
        return array[:rows]


class HostKVCache(HostArrays):
    """Caches in host memory, fp32 or int8: `2L * count * H * D * (max_target + max_source)` numbers, touched as rows need them.

    Where the kernels can, sources are encoded one after the other in a single row, so that none is padded.

    Args:
        encoder: graph `source, lengths -> memory`.
        step: graph with at least `caches, memories -> caches`, whose type is that of its inputs.
        count: maximum number of rows.
    """

    def __init__(self, encoder: Session, step: Session, manifest: TranslationManifest, count: int) -> None:
        self._encoder = encoder
        self._packs = encoder.takes_sequences and OFFSETS in encoder.optional_inputs
        # Measured: 7 to 9 on a processor with AVX2, whatever the precision, because weights are read anew.
        self.run_tokens = sys.maxsize if self._packs else 8
        shape = manifest.decoder
        self._recurrent = shape.state_vectors > 0
        targets, sources = cache_lengths(manifest.limits)
        names = cache_names(shape.layers)
        kind = step.dtype(f"cache_{names[0]}")
        self.cache, self.memory = (
            sparse_zeros((len(names), count, shape.heads, length, shape.head_dim), kind)
            for length in (shape.state_vectors or targets, sources)
        )
        self._positions = Positions(self.cache), Positions(self.memory)
        self._pending = array("q"), array("q")  # copies of these
        super().__init__(step, dict(zip(names, self.cache, strict=True)), dict(zip(names, self.memory, strict=True)))

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        rows, longest = source.shape
        if not self._packs:
            [memory] = self._encoder.run({"source": source, "lengths": lengths})  # [2L, B, H, S, D]
            self._copy_pending()
            self.memory[:, first : first + rows, :, :longest] = memory
            return
        if rows == 1:
            self._encode_packed(source[0], lengths, first)
            return
        tokens = source[np.arange(longest) < lengths[:, None]]
        ends = lengths.cumsum()
        while rows:
            # At least one row, and as many as keep intermediate results in the processor's caches.
            count = max(1, int(ends.searchsorted(PACKED_TOKENS, "right")))
            self._encode_packed(tokens[: ends[count - 1]], lengths[:count], first)
            tokens, lengths, ends = tokens[ends[count - 1] :], lengths[count:], ends[count:] - ends[count - 1]
            first, rows = first + count, rows - count

    def _encode_packed(self, tokens: Array, lengths: Array, first: int) -> None:
        inputs = {"source": tokens[None], "lengths": lengths}
        if len(lengths) > 1:  # each sequence's positions begin with 0
            inputs[OFFSETS] = -np.repeat(lengths.cumsum() - lengths, lengths)
        [memory] = self._encoder.run(inputs)  # [2L, 1, H, N, D]
        copies, start = array("q"), 0
        for row, length in enumerate(lengths.tolist(), first):
            copies.extend((0, start, row, 0, length))
            start += length
        self._copy_pending()
        self._positions[1].copy(Positions(memory), copies)

    def bind(self, arrays: StepArrays, rows: int) -> RunStep:
        run = super().bind(arrays, rows)

        def run_after_copies() -> None:
            self._copy_pending()
            run()

        return run_after_copies

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        start, stop = positions.start, positions.stop
        if self._recurrent:  # the state is one for all positions
            start, stop = 0, self.cache.shape[3]
        self._pending[0].extend((source, start, target, start, stop - start))
        if length:
            self._pending[1].extend((source, 0, target, 0, length))

    def copy_rows(self, copies: Array) -> None:
        if self._recurrent:
            copies[:, (1, 3)], copies[:, 4] = 0, self.cache.shape[3]
        self._pending[0].frombytes(copies.tobytes())

    def _copy_pending(self) -> None:
        """Make the copies since the last step, all at once; later ones may have the target of earlier ones as their source."""
        for positions, copies in zip(self._positions, self._pending, strict=True):
            if copies:
                positions.copy(positions, copies)
                del copies[:]


def cache_names(layers: int) -> list[str]:
    """Return the names of a graph's caches, in the order of the encoder's output."""
    return [f"{kind}_{layer}" for layer in range(layers) for kind in ("key", "value")]


def cache_lengths(limits: Limits) -> tuple[int, int]:
    """Return the number of target positions and of source positions in the caches."""
    return max(2, limits.max_target_tokens), max(2, limits.max_source_tokens)
