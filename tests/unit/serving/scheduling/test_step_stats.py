"""Histograms of steps."""

import pytest

from triptych_serving.scheduling.step_stats import ROWS, SECONDS, Histogram, StepStats


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5, 99.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.count == 6
    assert histogram.sum == pytest.approx(106.5)


def test_steps_of_several_threads_are_summed() -> None:
    first, second = StepStats(), StepStats()
    first.add(0.002, 4)
    second.add(0.003, 5)
    second.add(0.001, 4)
    total = StepStats.total(iter([first, second]))
    assert (total.seconds.count, total.rows.count) == (3, 3)
    assert total.seconds.sum == pytest.approx(0.006)
    assert total.rows.counts[ROWS.index(4.0)] == 2
    assert total.rows.counts[ROWS.index(8.0)] == 1
    assert first.rows.count == 1, "a total leaves its parts unchanged"
    assert StepStats.total([]).seconds.counts == [0] * (len(SECONDS) + 1)
