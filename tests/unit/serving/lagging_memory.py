"""A device that does its work only when it is waited for, as a busy one would; its memory is the host's."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, HostMemory, RowCopy

Work = Callable[[], object]


class LaggingMark:
    """A mark after a number of pieces of work."""

    def __init__(self, memory: "LaggingMemory", place: int) -> None:
        self._memory, self._place = memory, place

    def wait(self) -> None:
        self._memory.catch_up(self._place)


class LaggingMemory:
    """A Memory that executes work late.

    Args:
        device: its pretended device; a GPU gets no work while graphs are captured.
    """

    stream = 1

    def __init__(self, device: Device) -> None:
        self.device = device
        self.asked: list[Work] = []
        self.worked = 0  # pieces of work that are done
        self.most_waiting = 0  # at once
        self.closed = False
        self._host = HostMemory()
        self._staging: list[NDArray[Any]] = []  # accessed when the work is done; other arrays when it is enqueued

    def ask(self, work: Work) -> None:
        """Enqueue work."""
        assert not self.closed
        with CUDA_GRAPH_LOCK.running() if self.device.kind == "cuda" else nullcontext():
            self.asked.append(work)
        self.most_waiting = max(self.most_waiting, len(self.asked) - self.worked)

    def catch_up(self, place: int) -> None:
        """Do the work before a mark."""
        while self.worked < place:
            work = self.asked[self.worked]
            self.worked += 1
            work()

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        return self._host.zeros(shape, dtype)

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        self._staging.append(np.zeros(shape, dtype))
        return self._staging[-1]

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        held = host if self._is_staging(host) else host.copy()
        self.ask(lambda: self._host.upload(held, target))

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        self.ask(lambda: self._host.download(source, host))
        if not self._is_staging(host):  # the runtime waits for it
            self.wait()

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        self.ask(lambda: self._host.copy(source, target))

    def copy_rows(self, array: DeviceArray, copies: Sequence[RowCopy]) -> None:
        targets = [target for _, target, *_ in copies]
        assert len({*targets}) == len(targets)
        assert not {*targets} & {source for source, *_ in copies}
        self.ask(lambda: self._host.copy_rows(array, copies))

    def fill(self, target: DeviceArray, value: int) -> None:
        self.ask(lambda: self._host.fill(target, value))

    def mark(self) -> LaggingMark:
        return LaggingMark(self, len(self.asked))

    def wait(self) -> None:
        self.catch_up(len(self.asked))

    def close(self) -> None:
        self.wait()
        self.closed = True

    def _is_staging(self, host: NDArray[Any]) -> bool:
        return any(np.may_share_memory(host, staging) for staging in self._staging)


class PromptMemory(LaggingMemory):
    """A Memory that executes work at once."""

    def ask(self, work: Work) -> None:
        super().ask(work)
        self.wait()
