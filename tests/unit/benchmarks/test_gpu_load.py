"""Requests from several processes add up."""

from collections.abc import Callable, Iterable
from typing import Any

import gpu_load
import load
import pytest
from candidate import Decoding
from gpu_load import Generators
from load import Load


class Inline:
    """A pool that is this process."""

    def map(self, run: Callable[[Any], Any], parts: Iterable[Any], chunksize: int) -> list[Any]:
        return [run(part) for part in parts]


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Generators:
    gpu_load._hold(["a", "b", "c", "d", "e"], "model", Decoding(1, 8))
    return Generators(Inline(), 2)  # type: ignore[arg-type]


def test_an_open_loop_is_shared(crowd: Generators, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def open_loop(address: str, requests: Any, rate: float, seconds: float, seed: int, timeout: float) -> Load:
        asked.append((rate, seed, len(requests)))
        return Load(rate, (0.1 * seed,), (0.0, 0.5), float(seed))

    monkeypatch.setattr(load, "open_loop", open_loop)
    found = crowd.open_loop("address", [], 100.0, 1.0, 3, 9.0)
    assert asked == [(50.0, 6, 5), (50.0, 7, 5)]
    assert found == Load(100.0, (0.6000000000000001, 0.7000000000000001), (0.0, 0.5, 0.0, 0.5), 7.0)


def test_a_closed_loop_sends_each_request_once(crowd: Generators, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def closed_loop(address: str, requests: Any, in_flight: int) -> float:
        sent.append(([request.contents[0] for request in requests], in_flight))
        return float(len(requests))

    monkeypatch.setattr(load, "closed_loop", closed_loop)
    assert crowd.closed_loop("address", gpu_load._held, 8) == 3.0
    assert sent == [(["a", "c", "e"], 4), (["b", "d"], 4)]
