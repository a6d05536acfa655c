"""Detection of the steady state."""

from collections.abc import Sequence

import pytest

from triptych_bench.measure.steady import Span, Window, is_steady

from ..fakes import record


def windows(*values: tuple[int, float]) -> Sequence[Window]:
    """Make windows of one second each, from requests and mean latencies."""
    return [Window(Span(number, number + 1), *value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "steady"),
    [
        ([(100, 0.1), (100, 0.1)], False),  # too few
        ([(100, 0.1), (105, 0.1), (95, 0.105)], True),
        ([(100, 0.1), (120, 0.1), (95, 0.1)], False),  # the rate
        ([(100, 0.1), (100, 0.1), (100, 0.15)], False),  # the latency
        ([(10, 0.9), (100, 0.1), (101, 0.1), (99, 0.1)], True),  # what was before does not matter
        ([(0, 0.0), (0, 0.0), (0, 0.0)], False),
    ],
)
def test_three_windows_that_agree(values: list[tuple[int, float]], steady: bool) -> None:
    assert is_steady(windows(*values), 0.1) is steady


def test_a_window_counts_its_responses() -> None:
    records = [record(0.0, 0.5), record(0.5, 0.5), record(0.9, 0.3), record(1.9, 0.2), record(1.2, 0.1, code="UNAVAILABLE")]
    window = Window.of(records, Span(1.0, 2.0))
    assert (window.completed, window.rate) == (2, 2.0)
    assert window.mean_latency == pytest.approx(0.4)
