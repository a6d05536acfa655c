"""No session of a pool is run by two threads at once."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from triptych_serving.runtime.session import Array
from triptych_serving.runtime.session_pool import SessionPool


class Lonely:
    """Fails when it is run by two, and when it is told to."""

    def __init__(self) -> None:
        self.runs = 0
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: Any = None) -> list[Array]:
        assert self._lock.acquire(blocking=False), "two threads run one session"
        try:
            self.runs += 1
            if inputs["x"][0] < 0:
                raise RuntimeError("cannot run")
            return [inputs["x"] * 2]
        finally:
            self._lock.release()


def test_each_session_runs_one_thread_at_a_time() -> None:
    sessions = [Lonely(), Lonely(), Lonely()]
    pool = SessionPool(sessions)  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda value: int(pool.run({"x": np.array([value])})[0][0]), range(300)))
    assert found == [2 * value for value in range(300)]
    assert all(session.runs for session in sessions)


def test_a_failed_session_is_reused() -> None:
    pool = SessionPool([Lonely()])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="cannot run"):
        pool.run({"x": np.array([-1])})
    assert pool.run({"x": np.array([4])}) == [np.array([8])]
