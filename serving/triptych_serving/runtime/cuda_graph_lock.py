"""The CUDA graph lock: while one thread captures a CUDA graph, no other thread may call CUDA."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class CudaGraphLock:
    """A reader-writer lock: any number of threads run, or one captures. Thread-safe.

    A waiting capture precedes threads that come later to run. Inside either block a thread may enter `running` again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0  # threads
        self._waiting = 0  # to capture
        self._capturing = False
        self._deferred: list[list[object]] = []  # lists to clear when the capture ends
        self._inside = _Inside(self)

    def running(self) -> "_Inside":
        """Return the context for everything that calls CUDA: runs, copies, waits."""
        return self._inside

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Context for runs that capture, alone in the process.

        Raises:
            RuntimeError: this thread is already inside a block, and would wait for itself.
        """
        if self._inside.depth:
            raise RuntimeError("a thread that holds the CUDA graph lock cannot acquire it to capture")
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
            while deferred := self._take_deferred():
                for things in deferred:
                    things.clear()
            self._inside.depth = 0

    def part_with(self, things: list[object]) -> None:
        """Clear a list of objects whose destruction calls CUDA: at once, or during a capture at its end.

        Never waits. Objects are destroyed before a stream that is closed later under the lock.
        """
        with self._changed:
            if self._capturing:
                self._deferred.append(things)
                return
            self._running += 1
        try:
            things.clear()
        finally:
            self.leave()

    def _take_deferred(self) -> list[list[object]]:
        """Return what was deferred during the capture; if nothing, end the capture in the same step."""
        with self._changed:
            deferred, self._deferred = self._deferred, []
            if not deferred:
                self._capturing = False
                self._changed.notify_all()
            return deferred

    def enter(self) -> None:
        """Count a running thread, once no thread captures or waits to capture."""
        with self._changed:
            while self._capturing or self._waiting:
                self._changed.wait()
            self._running += 1

    def leave(self) -> None:
        """Stop counting a running thread."""
        with self._changed:
            self._running -= 1
            if not self._running:
                self._changed.notify_all()


class _Inside(threading.local):
    """The context of running threads; counts the nesting depth of each thread."""

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


CUDA_GRAPH_LOCK = CudaGraphLock()  # one for the process
