"""Tallies: what lies in which bucket."""

import pytest

from triptych_serving.scheduling.step_stats import ROWS, SECONDS, Histogram, StepStats


def test_a_bound_belongs_to_its_bucket() -> None:
    tally = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5, 99.0):
        tally.add(value)
    assert tally.counts == [2, 2, 2]
    assert tally.count == 6
    assert tally.sum == pytest.approx(106.5)


def test_a_total_leaves_its_parts_alone() -> None:
    first, second = Histogram((1.0,)), Histogram((1.0,))
    first.add(1.0)
    second.add(3.0)
    total = Histogram.total((1.0,), [first, second])
    assert (total.counts, total.sum) == ([1, 1], 4.0)
    assert (first.counts, second.counts) == ([1, 0], [0, 1])


def test_a_total_of_nothing_is_empty() -> None:
    total = StepStats.total([])
    assert total.seconds.counts == [0] * (len(SECONDS) + 1)
    assert total.rows.counts == [0] * (len(ROWS) + 1)


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
