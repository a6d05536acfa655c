"""The encoder of a lane whose caches are a device's: its output stays there."""

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from triptych_serving.runtime.memory import DeviceArray, Memory
from triptych_serving.runtime.session import UNCAPTURED, Array, Binding, Session

TOKENS = 4_096  # padded, of one run: more in one are hardly faster, and take more memory
WIDTH_STEP = 16  # tokens: lengths are padded to multiples, and rows to powers of two, so that few shapes are ever run


class Prefill:
    """Static buffers for one run at a time, and a binding for each shape. Used by one thread.

    Args:
        encoder: graph `source, lengths -> memory`, `memory` of 16 bits, `[2L, B, H, S, D]`.
        longest: tokens of a source.
        shape: 2L, H and D.
        memory: of the encoder's place.
    """

    def __init__(self, encoder: Session, longest: int, shape: tuple[int, int, int], memory: Memory) -> None:
        self._encoder, self._memory = encoder, memory
        self._longest, self._shape = longest, shape
        self._tokens = max(TOKENS, longest)
        self._source = memory.zeros((self._tokens,), np.int64)
        self._lengths = memory.zeros((self._tokens,), encoder.dtype("lengths"))
        self._encoded = memory.zeros((self._tokens * prod(shape),), np.float16)
        self._bindings: dict[tuple[int, int], Binding] = {}

    @property
    def bytes(self) -> int:
        """Of the buffers."""
        return self._source.nbytes + self._lengths.nbytes + self._encoded.nbytes

    @staticmethod
    def bytes_for(longest: int, shape: tuple[int, int, int]) -> int:
        """Of the buffers, before there are any; arguments as for the class."""
        lengths = np.dtype(np.int64).itemsize  # at most
        return max(TOKENS, longest) * (8 + lengths + np.dtype(np.float16).itemsize * prod(shape))

    def encode(self, source: Array, lengths: Array) -> Iterator[tuple[slice, DeviceArray]]:
        """Encode in one run or several.

        Args:
            source: `[rows, longest]` ids, padded; rows of like lengths side by side, longest first, are padded least.
            lengths: `[rows]`.

        Yields:
            which rows, and their memory `[2L, those rows or more, H, the longest of them or more, D]`: what is to be done with
            it must be asked for before the next part.

        Raises:
            EngineError: the runtime failed.
        """
        first = 0
        while first < len(source):
            width = self._width(lengths[first:])
            part = slice(first, min(len(source), first + (1 << (self._tokens // width).bit_length() - 1)))
            yield part, self._run(source[part], lengths[part])
            first = part.stop

    def _width(self, lengths: Array) -> int:
        """That rows of these lengths are padded to."""
        return min(self._longest, -(-int(lengths.max()) // WIDTH_STEP) * WIDTH_STEP)

    def _run(self, source: Array, lengths: Array) -> DeviceArray:
        rows, width = len(source), self._width(lengths)
        padded = 1 << (rows - 1).bit_length()
        ids = np.zeros((padded, width), np.int64)
        known = min(width, source.shape[1])
        ids[:rows, :known] = source[:, :known]
        sizes = np.ones(padded, self._lengths.dtype)  # of a row that only fills up, too: it must attend to something
        sizes[:rows] = lengths
        inputs = {"source": self._source.shaped(ids.shape), "lengths": self._lengths.first(padded)}
        pairs, heads, dim = self._shape
        encoded = self._encoded.shaped((pairs, padded, heads, width, dim))
        self._memory.upload(ids, inputs["source"])
        self._memory.upload(sizes, inputs["lengths"])
        self._bind(inputs, encoded).run(UNCAPTURED)
        return encoded

    def _bind(self, inputs: Mapping[str, DeviceArray], encoded: DeviceArray) -> Binding:
        rows, width = inputs["source"].shape
        if (rows, width) not in self._bindings:
            self._bindings[rows, width] = self._encoder.bind(inputs, {"memory": encoded})
        return self._bindings[rows, width]
