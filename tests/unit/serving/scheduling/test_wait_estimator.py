"""Forecasts, with the time as a plain number."""

import pytest

from triptych_serving.scheduling.wait_estimator import (
    FALL,
    FORGET_SECONDS,
    GREATEST,
    LEAST_SAMPLES,
    LEAST_SECONDS,
    RISE,
    Caution,
    ExpectedCall,
    IncomingTexts,
    WaitEstimator,
)


def steady(tokens: int = 10, every: float = 0.1, takes: int = 50, seconds: float = 0.5) -> WaitEstimator:
    """Make an estimator of a queue in which rows wait all the time."""
    estimator = WaitEstimator()
    for index in range(takes):
        estimator.record_taken(tokens, index * every, left=True)
        estimator.record_served(seconds)
    return estimator


def wait_of(estimator: WaitEstimator, tokens: int) -> float:
    forecast = estimator.forecast(tokens)
    assert forecast is not None
    return forecast.wait


def test_the_wait_is_the_work_ahead_at_the_rate_of_late() -> None:
    forecast = steady(tokens=10, every=0.1).forecast(200)
    assert forecast is not None
    assert (forecast.wait, forecast.service, forecast.total) == pytest.approx((2.0, 0.5, 2.5))


def test_there_is_no_forecast_at_first() -> None:
    assert WaitEstimator().forecast(10) is None
    cold = steady(every=LEAST_SECONDS / 10, takes=5)
    assert cold.forecast(10) is None
    assert cold.forecast(0) is not None
    estimator = WaitEstimator()
    for known in (False,) * (LEAST_SAMPLES - 1) + (True,):
        estimator.record_served(0.5)
        assert (estimator.forecast(0) is not None) == estimator.is_known == known


def test_time_in_which_no_row_waited_does_not_count() -> None:
    estimator = steady(tokens=10, every=0.1)
    estimator.record_taken(10, 5.0, left=False)  # the last one
    for later in (10.0, 20.0, 30.0):  # one by one: each finds an empty queue
        estimator.record_taken(1, later, left=False)
    assert wait_of(estimator, 100) == pytest.approx(1.0)
    paused = steady(tokens=10, every=0.1)
    paused.record_empty()
    paused.record_taken(10, 20.0, left=True)
    assert wait_of(paused, 100) == pytest.approx(1.0)


def test_rows_that_all_end_together_count() -> None:
    estimator = WaitEstimator()
    for index in range(20):
        estimator.record_taken(320, index * 1.0, left=True, fills=True)
        estimator.record_served(1.0)
    assert wait_of(estimator, 640) == pytest.approx(2.0)


def test_rows_that_fill_an_idle_engine_do_not_count() -> None:
    estimator = steady(tokens=10, every=0.1)
    for index in range(50):
        estimator.record_taken(1_000, 4.9 + index / 1_000, left=True, fills=True)
    assert wait_of(estimator, 100) == pytest.approx(1.0)


def test_a_change_of_the_rate_is_followed() -> None:
    estimator = steady(tokens=10, every=0.1)
    for index in range(100):
        estimator.record_taken(10, 5.0 + index * 0.2, left=True)
    assert wait_of(estimator, 100) == pytest.approx(2.0, rel=0.05)


def test_an_idle_minute_forgets_everything() -> None:
    estimator = steady()
    estimator.record_taken(10, 5.0 + FORGET_SECONDS, left=True)
    assert estimator.forecast(10) is None


def test_the_service_time_is_on_the_slow_side() -> None:
    estimator = WaitEstimator()
    for seconds in (0.1, 0.3) * 40:
        estimator.record_served(seconds)
    forecast = estimator.forecast(0)
    assert forecast is not None
    assert 0.3 < forecast.service < 0.5


def test_late_calls_raise_the_caution() -> None:
    caution = Caution()
    caution.add(in_time=True)
    assert caution.factor == 1
    for _ in range(1_000):
        caution.add(in_time=False)
    assert caution.factor == GREATEST
    for _ in range(10_000):
        caution.add(in_time=True)
    assert caution.factor == 1


def test_caution_settles_where_few_calls_are_late() -> None:
    """A call is in time if the factor was 1.5 or more."""
    caution, late = Caution(), 0
    for index in range(20_000):
        in_time = caution.factor >= 1.5
        late += index >= 10_000 and not in_time
        caution.add(in_time)
    assert late / 10_000 == pytest.approx(FALL / RISE, rel=0.1)


def test_tokens_are_estimated_from_the_latest_texts() -> None:
    incoming = IncomingTexts()
    assert incoming.expect(2, 1_000) == ExpectedCall(2)
    incoming.learn(250, 1_000)
    assert incoming.expect(1, 400).tokens == 100
    for _ in range(200):
        incoming.learn(500, 1_000)
    assert incoming.expect(1, 400).tokens == 200


def test_calls_that_are_being_tokenized_are_ahead() -> None:
    incoming = IncomingTexts()
    incoming.learn(250, 1_000)
    first = incoming.expect(3, 400)
    with incoming.hold(first), incoming.hold(incoming.expect(1, 40)):
        assert incoming.expect(1, 4) == ExpectedCall(1, 1, 2, 110)
    assert incoming.expect(1, 4) == ExpectedCall(1, 1)
