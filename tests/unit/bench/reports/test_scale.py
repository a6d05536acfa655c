"""Scales of axes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triptych_bench.reports.scale import LinearScale, LogScale, TailScale, decades, ending, fitting, from_zero

sizes = st.floats(1e-6, 1e9)


@given(st.lists(sizes, min_size=1))
def test_linear_axes_contain_zero_and_all_values(values: list[float]) -> None:
    scale = from_zero(values)
    assert scale.ticks[0] == 0
    assert 3 <= len(scale.ticks) <= 7
    assert all(0 <= scale(value) <= 1 + 1e-9 for value in values)
    assert scale(0) == 0


@example([1.0, 2.001953125])
@given(st.lists(sizes, min_size=1))
def test_logarithmic_axes_contain_all_values(values: list[float]) -> None:
    scale = decades(values)
    assert 2 <= len(scale.ticks) <= 17
    assert all(-1e-9 <= scale(value) <= 1 + 1e-9 for value in values)
    assert [scale(scale.low), scale(scale.high)] == pytest.approx([0, 1])


@given(sizes, sizes)
def test_equal_factors_are_equal_distances(one: float, other: float) -> None:
    scale = decades([1e-6, 1e9])
    assert scale(one * 2) - scale(one) == pytest.approx(scale(other * 2) - scale(other), abs=1e-6) or max(one, other) > 5e8


def test_axes_fit_their_values() -> None:
    assert isinstance(fitting([1, 39]), LinearScale)
    assert isinstance(fitting([1, 41]), LogScale)
    assert isinstance(fitting([0, 0]), LinearScale)
    scale = ending(23.0)
    assert scale(23.0) == 1
    assert scale.ticks[-1] <= 23
    assert scale.ticks[1] == 2.5
    scale = TailScale(3.0)
    assert list(scale.ticks) == pytest.approx([0, 0.5, 0.9, 0.99, 0.999])
    assert [scale(tick) for tick in (0, 0.9, 0.99, 0.999)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert scale(1.0) == 1
