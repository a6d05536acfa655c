"""The CPU's memory with a GPU's asynchrony, which detects early reads and writes.

Downloads are garbage until a later mark has been waited for. Staging that is uploaded must not change until a later mark has
been waited for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.memory import DeviceArray, HostMemory, host_view

GARBAGE = 0xA5  # each byte of it

_STAGING: WeakValueDictionary[int, NDArray[Any]] = WeakValueDictionary()  # by identity: every stream reads it where it is
_staging_lock = Lock()


@dataclass(frozen=True)
class Transfer:
    """A pending transfer."""

    values: NDArray[Any]  # where it began, when it was asked for
    target: NDArray[Any] | None  # where it ends; None: it is there already
    host: NDArray[Any] | None  # staging that must stay as it was


class StrictMark:
    """Knows how much was asked for before it."""

    def __init__(self, memory: "StrictMemory", count: int) -> None:
        self._memory = memory
        self._count = count

    def wait(self) -> None:
        self._memory.settle(self._count)


class StrictMemory(HostMemory):
    """Runs of sessions are done when they return, so only transfers can be late. Marks may be waited for in any thread.

    Args:
        runs: sessions run on this stream: what is uploaded is there for them. Without it is late too, for other streams.
    """

    def __init__(self, runs: bool = True) -> None:
        self.asked = 0
        self.closed = False
        self._runs = runs
        self._pending: list[Transfer] = []
        self._settled = 0
        self._lock = Lock()

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        array = super().staging(shape, dtype)
        with _staging_lock:
            _STAGING[id(array)] = array
        return array

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        super().upload(host, target)
        with _staging_lock:
            staged = any(np.may_share_memory(host, array) for array in _STAGING.values())
        if staged:
            late = None if self._runs else host_view(target)
            self._ask(Transfer(host.copy(), late, host))

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        values = np.empty_like(host)
        super().download(source, values)
        self._ask(Transfer(values, host, None))

    def mark(self) -> StrictMark:  # type: ignore[override]
        return StrictMark(self, self._count())

    def wait(self) -> None:
        self.settle(self._count())

    def close(self) -> None:
        self.wait()
        self.closed = True

    def settle(self, count: int) -> None:
        """The first so many transfers are over."""
        with self._lock:
            while self._settled < count:
                transfer = self._pending.pop(0)
                self._settled += 1
                if transfer.host is not None:
                    unchanged = np.array_equal(transfer.host.view(np.uint8), transfer.values.view(np.uint8))
                    assert unchanged, "staging was written before a mark was waited for"
                if transfer.target is not None:
                    transfer.target[...] = transfer.values

    def _ask(self, transfer: Transfer) -> None:
        """Until it is over there is garbage where it ends."""
        if transfer.target is not None:
            transfer.target.reshape(-1).view(np.uint8)[...] = GARBAGE
        with self._lock:
            self._pending.append(transfer)

    def _count(self) -> int:
        with self._lock:
            return self._settled + len(self._pending)
