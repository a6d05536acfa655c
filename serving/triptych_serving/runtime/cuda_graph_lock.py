"""While one thread captures a CUDA graph, no other may call CUDA."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class CudaGraphLock:
    """Any number of threads run, or one captures. Thread-safe.

    Who waits to capture goes before those who come to run after it. Inside either block a thread may enter `running` again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0  # threads
        self._waiting = 0  # to capture
        self._capturing = False
        self._left: list[list[object]] = []  # until nobody captures
        self._inside = _Inside(self)

    def running(self) -> "_Inside":
        """Around everything that calls CUDA: runs, copies, waits."""
        return self._inside

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Around runs that capture, alone in the process.

        Raises:
            RuntimeError: this thread is inside a block already, so it would wait for itself.
        """
        if self._inside.depth:
            raise RuntimeError("a thread that is inside the gate cannot enter it to capture")
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._capturing and not self._running)
                self._capturing = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        self._inside.depth = 1
        try:
            yield
        finally:
            while left := self._take_left():
                for things in left:
                    things.clear()
            self._inside.depth = 0

    def part_with(self, things: list[object]) -> None:
        """Empty a list of objects whose end calls CUDA: at once, or, while somebody captures, before anybody else enters.

        Never waits. A stream that is closed inside of the gate is still there when what was parted with before it ends.
        """
        with self._changed:
            if self._capturing:
                self._left.append(things)
                return
            self._running += 1
        try:
            things.clear()
        finally:
            self.leave()

    def _take_left(self) -> list[list[object]]:
        """What was parted with during the capture. Nothing: then the gate is open, and nothing more will be left."""
        with self._changed:
            left, self._left = self._left, []
            if not left:
                self._capturing = False
                self._changed.notify_all()
            return left

    def enter(self) -> None:
        """One more thread runs, as soon as nobody captures or waits to."""
        with self._changed:
            while self._capturing or self._waiting:
                self._changed.wait()
            self._running += 1

    def leave(self) -> None:
        """One thread less."""
        with self._changed:
            self._running -= 1
            if not self._running:
                self._changed.notify_all()


class _Inside(threading.local):
    """The block of the threads that run; it is made once, and counts for each thread how deep it is inside."""

    def __init__(self, gate: CudaGraphLock) -> None:
        self._gate = gate
        self.depth = 0

    def __enter__(self) -> None:
        if not self.depth:
            self._gate.enter()
        self.depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.depth -= 1
        if not self.depth:
            self._gate.leave()


CUDA_GRAPH_LOCK = CudaGraphLock()  # the process's
