"""Load from several processes."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from candidates.candidate import Decoding
from servers import load
from servers.load import Generators, Load, translation_requests


class Inline:
    """Process pool that runs everything in this process."""

    def map(self, run: Callable[[Any], Any], parts: Iterable[Any], chunksize: int) -> list[Any]:
        return [run(part) for part in parts]


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> Generators:
    for name in ("freeze", "disable"):
        monkeypatch.setattr(load.gc, name, lambda: None)
    load._hold(partial(translation_requests, ["a", "b", "c", "d", "e"], "model", Decoding(1, 8)))
    return Generators(Inline(), 2, 5)  # type: ignore[arg-type]


def test_an_open_loop_is_shared(generators: Generators, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(share: tuple[str, float, float, int, float]) -> Load:
        _, rate, _, seed, _ = share
        return Load(rate, (float(seed),), (0.0, 0.5), float(seed))

    monkeypatch.setattr(load, "_open", run)
    assert generators.open_loop("address", 100.0, 1.0, 3, 9.0) == Load(100.0, (6.0, 7.0), (0.0, 0.5, 0.0, 0.5), 7.0)


def test_a_closed_loop_sends_each_request_once(generators: Generators, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def run(part: tuple[str, slice, int]) -> float:
        _, chosen, in_flight = part
        sent.append(([request.contents[0] for request in load._held[0][1][chosen]], in_flight))
        return float(len(sent[-1][0]))

    monkeypatch.setattr(load, "_closed", run)
    assert generators.closed_loop("address", 8) == 3.0
    assert sent == [(["a", "c", "e"], 4), (["b", "d"], 4)]


def test_failures_are_infinite_latencies() -> None:
    found = Load(10.0, (0.1, load.FAILED), (0.0,), 2.0)
    assert (found.failed, found.throughput, found.percentile(99)) == (1, 0.5, load.FAILED)
