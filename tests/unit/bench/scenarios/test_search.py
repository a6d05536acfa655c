"""Finding the highest rate."""

from collections.abc import Callable

import pytest

from triptych_bench.scenarios.search import Search


def search_of(
    passes: Callable[[float], bool], capacity: float, probes: int = 20, resolution: float = 0.03
) -> tuple[float, int]:
    """What is found, and after how many probes."""
    search = Search(capacity, resolution)
    for probe in range(probes):
        doubted = search.over
        if doubted:
            search.doubt()
        passed = passes(search.rate)
        search.learn(passed)
        if doubted and not passed:
            return search.found, probe + 1
    return search.found, probes


@pytest.mark.parametrize("limit", [5.0, 20.0, 69.0, 71.0, 99.0, 100.0, 180.0])
def test_it_comes_near(limit: float) -> None:
    found, probes = search_of(lambda rate: rate <= limit, 100.0)
    assert limit * 0.96 <= found <= limit
    assert probes <= 12


def test_where_no_rate_passes_there_is_none() -> None:
    found, probes = search_of(lambda _: False, 100.0)
    assert found == 0.0
    assert probes < 12


def test_one_bad_moment_does_not_end_it_far_below() -> None:
    calls = 0

    def passes(rate: float) -> bool:
        nonlocal calls
        calls += 1
        return calls != 1 and rate <= 90.0  # 70 failed once

    found, _ = search_of(passes, 100.0)
    assert found >= 0.95 * 90.0


def test_without_doubt_nothing_is_tried_again() -> None:
    search = Search(100.0, 0.5)
    search.doubt()
    assert search.rate == 70.0
    search.learn(True)
    assert search.rate == pytest.approx(87.5)
