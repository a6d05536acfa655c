"""Many run, or one captures."""

import threading
import time
from collections.abc import Callable

import pytest

from triptych_serving.runtime.cuda_graph_lock import CudaGraphLock

SECONDS = 10.0  # nothing here takes long


def start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def is_stuck(thread: threading.Thread) -> bool:
    thread.join(0.05)
    return thread.is_alive()


def end(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


class Inside:
    """A thread that stays in a block until it is let go."""

    def __init__(self, gate: CudaGraphLock, captures: bool = False) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.thread = start(lambda: self._stay(gate, captures))

    def _stay(self, gate: CudaGraphLock, captures: bool) -> None:
        with gate.capturing() if captures else gate.running():
            self.entered.set()
            self.leave.wait(SECONDS)

    def end(self) -> None:
        self.leave.set()
        end(self.thread)


@pytest.mark.parametrize("captures", [False, True])
def test_no_thread_enters_during_a_capture(captures: bool) -> None:
    gate = CudaGraphLock()
    capturer = Inside(gate, captures=True)
    assert capturer.entered.wait(SECONDS)
    other = Inside(gate, captures)
    assert not other.entered.wait(0.05)
    capturer.end()
    assert other.entered.wait(SECONDS)
    other.end()


def test_a_waiting_capture_precedes_later_threads() -> None:
    gate = CudaGraphLock()
    runner = Inside(gate)
    assert runner.entered.wait(SECONDS)
    capturer = Inside(gate, captures=True)
    assert is_stuck(capturer.thread)
    assert not capturer.entered.is_set()
    late = Inside(gate)
    assert not late.entered.wait(0.05)
    runner.end()
    assert capturer.entered.wait(SECONDS)
    assert not late.entered.is_set()
    capturer.end()
    assert late.entered.wait(SECONDS)
    late.end()


def test_the_lock_is_reentrant() -> None:
    """Even while another waits to capture, which would otherwise never come to its turn."""
    gate = CudaGraphLock()
    capturer: Inside
    with gate.running():
        capturer = Inside(gate, captures=True)
        assert is_stuck(capturer.thread)
        with gate.running(), gate.running():
            assert not capturer.entered.is_set()
    assert capturer.entered.wait(SECONDS)
    capturer.end()
    with gate.capturing(), gate.running():
        other = Inside(gate)
        assert not other.entered.wait(0.05)
    assert other.entered.wait(SECONDS)
    other.end()


def test_a_running_thread_cannot_capture() -> None:
    gate = CudaGraphLock()
    with gate.running(), pytest.raises(RuntimeError, match="holds the CUDA graph lock"), gate.capturing():
        pass
    with gate.capturing():
        pass


@pytest.mark.parametrize("captures", [False, True])
def test_an_error_releases_the_lock(captures: bool) -> None:
    gate = CudaGraphLock()
    with pytest.raises(KeyError), gate.capturing() if captures else gate.running():
        raise KeyError
    with gate.capturing():
        pass
    Inside(gate).end()


def test_deferred_objects_are_destroyed_before_other_threads_enter() -> None:
    """Objects are destroyed before a stream that is closed under the lock."""
    gate, ended = CudaGraphLock(), list[str]()

    class Slow:
        def __del__(self) -> None:
            time.sleep(0.05)
            ended.append("thing")

    def enter(captures: bool) -> None:
        with gate.capturing() if captures else gate.running():
            ended.append("other")

    with gate.capturing():
        gate.part_with([Slow()])
        others = [start(lambda captures=captures: enter(captures)) for captures in (False, True)]  # type: ignore[misc]
        assert all(is_stuck(other) for other in others)
    end(*others)
    assert ended == ["thing", "other", "other"]


def test_captures_are_exclusive_under_load() -> None:
    gate, running, wrong, stop = CudaGraphLock(), set(), [], time.monotonic() + 0.5
    lock, captures, ends = threading.Lock(), threading.Event(), list[bool]()

    class Thing:
        """Records whether another thread captures when it is destroyed."""

        def __del__(self) -> None:
            ends.append(captures.is_set())

    def run(number: int) -> None:
        while time.monotonic() < stop:
            with gate.running():
                with lock:
                    running.add(number)
                with gate.running():
                    time.sleep(0)
                with lock:
                    running.discard(number)
            gate.part_with([Thing()])

    def capture_often() -> None:
        while time.monotonic() < stop:
            with gate.capturing():
                captures.set()
                if running:
                    wrong.append(set(running))
                captures.clear()
            time.sleep(0.002)

    threads = [start(lambda number=number: run(number)) for number in range(3)] + [start(capture_often) for _ in range(2)]  # type: ignore[misc]
    end(*threads)
    assert not wrong
    assert ends
    assert not any(ends)
