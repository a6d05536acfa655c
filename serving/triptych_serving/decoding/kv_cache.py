"""What a lane's rows have decoded and what the encoder made of their sources, and its graphs over both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from triptych_serving.bundle.manifest import Limits, TranslationManifest
from triptych_serving.runtime.session import Array, Session


@dataclass(frozen=True)
class StepArrays:
    """Arrays of the host by the names of a graph's inputs and outputs: `[count, ...]`, or of another length."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)  # inputs that never change
    rare: Mapping[str, Array] = field(default_factory=dict)  # outputs that are read only after `Caches.fetch`


class BoundStep(Protocol):
    """A graph over arrays."""

    def run(self) -> None:
        """Run it; the host's arrays have the answers.

        Raises:
            EngineError: the runtime failed.
        """


class KVCache(Protocol):
    """Of `count` rows, in memory that is allocated once. Used by one thread."""

    @property
    def count(self) -> int:
        """The most rows at once."""

    @property
    def padding(self) -> float:
        """Rows are encoded together while their padded tokens are at most so many times their own."""

    @property
    def bytes(self) -> int:
        """Their memory."""

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """Zeros of the host, for what the graph writes beside the caches."""

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        """Run the encoder for the rows from `first` on.

        Args:
            source: `[rows, longest]` ids, padded.
            lengths: `[rows]`.
            first: of the rows.

        Raises:
            EngineError: the runtime failed.
        """

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        """Copy between two rows.

        Args:
            source: row.
            target: another row.
            positions: of the tokens decoded, which are copied.
            length: in tokens, of the encoded source, which is copied too; 0: it is the same already.
        """

    def bind(self, bound: StepArrays, rows: int) -> BoundStep:
        """The step graph over the first rows' caches and of these arrays the first rows, where they are `count` long."""

    def fetch(self, array: Array) -> None:
        """Bring what the last run wrote into one of its rare outputs to the host."""


class HostKVCache:
    """In the host's memory, 32 bits: `4 * 2L * count * H * D * (max_target + max_source)` bytes, touched as rows reach them.

    Args:
        encoder: graph `source, lengths -> memory`.
        step: graph with at least `caches, memories -> caches`.
        manifest: shapes and limits.
        count: the most rows at once.
    """

    padding = 1.15

    def __init__(self, encoder: Session, step: Session, manifest: TranslationManifest, count: int) -> None:
        self._encoder, self._step = encoder, step
        shape = manifest.decoder
        self.count = count
        self._names = cache_names(shape.layers)
        self.cache, self.memory = (
            np.zeros((len(self._names), count, shape.heads, length, shape.head_dim), np.float32)
            for length in cache_lengths(manifest.limits)
        )

    @property
    def bytes(self) -> int:
        return self.cache.nbytes + self.memory.nbytes

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        return np.zeros(shape, dtype)

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        [memory] = self._encoder.run({"source": source, "lengths": lengths})  # [2L, B, H, S, D]
        rows, longest = source.shape
        self.memory[:, first : first + rows, :, :longest] = memory

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        self.cache[:, target, :, positions] = self.cache[:, source, :, positions]
        if length:
            self.memory[:, target, :, :length] = self.memory[:, source, :, :length]

    def bind(self, bound: StepArrays, rows: int) -> BoundStep:
        caches = {name: buffer[:rows] for name, buffer in zip(self._names, self.cache, strict=True)}
        memories = {name: buffer[:rows] for name, buffer in zip(self._names, self.memory, strict=True)}
        inputs = {
            **{name: self._active(array, rows) for name, array in {**bound.inputs, **bound.constants}.items()},
            **{f"cache_{name}": array for name, array in caches.items()},
            **{f"memory_{name}": array for name, array in memories.items()},
        }
        outputs = {
            **{name: self._active(array, rows) for name, array in {**bound.outputs, **bound.rare}.items()},
            **{f"present_{name}": array for name, array in caches.items()},
        }
        return self._step.bind(inputs, outputs)

    def fetch(self, array: Array) -> None:
        """It is there."""

    def _active(self, array: Array, rows: int) -> Array:
        return array[:rows] if len(array) == self.count else array


def cache_names(layers: int) -> list[str]:
    """Of a graph's caches, in the order of an encoder's output."""
    return [f"{kind}_{layer}" for layer in range(layers) for kind in ("key", "value")]


def cache_lengths(limits: Limits) -> tuple[int, int]:
    """Positions of targets and of sources in the caches."""
    return max(2, limits.max_target_tokens), max(2, limits.max_source_tokens)
