"""Small uploads on their way: page-locked memory that is written round and round."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.runtime.memory.protocol import Mark, Memory

ALIGNMENT = 64  # bytes, of the processor's cache


class Ring:
    """Of the thread that uses its memory.

    Two halves take turns: before one is written anew, the copies out of it are waited for, asked for half a round ago.

    Args:
        memory: whose staging it is.
        size: bytes; half of it is the most that fits.
    """

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory = memory
        self._bytes: NDArray[Any] = memory.staging((size,), np.uint8)
        self.largest = size // 2
        self._half = 0  # that is written now
        self._used = 0  # bytes of it
        self._marks: list[Mark | None] = [None, None]  # of the last copy out of each half

    def take(self, host: NDArray[Any]) -> NDArray[Any]:
        """A copy of the array that stays as it is until the device has read it, if it is asked to at once.

        Raises:
            ValueError: the array is larger than a half.
        """
        if host.nbytes > self.largest:
            raise ValueError(f"an array of {host.nbytes} bytes does not fit, at most {self.largest} do")
        if self._used + host.nbytes > self.largest:
            self._turn()
        start = self._half * self.largest + self._used
        self._used += -(-host.nbytes // ALIGNMENT) * ALIGNMENT
        held = np.ndarray(host.shape, host.dtype, buffer=self._bytes.data, offset=start)
        held[...] = host
        return held

    def _turn(self) -> None:
        self._marks[self._half] = self._memory.mark()
        self._half = 1 - self._half
        self._used = 0
        mark = self._marks[self._half]
        if mark is not None:
            mark.wait()
