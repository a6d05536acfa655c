"""How long a call would take, with the time as a plain number."""

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
    Service,
    WaitEstimator,
)


def steady(tokens: int = 10, every: float = 0.1, takes: int = 50, seconds: float = 0.5) -> WaitEstimator:
    """A queue that somebody waits in all the time."""
    pace = WaitEstimator()
    for index in range(takes):
        pace.take(tokens, index * every, left=True)
        pace.serve(seconds)
    return pace


def test_a_wait_is_what_stands_before_at_the_pace_of_late() -> None:
    forecast = steady(tokens=10, every=0.1).forecast(200)
    assert forecast is not None
    assert forecast.wait == pytest.approx(2.0)
    assert forecast.service == pytest.approx(0.5)
    assert forecast.total == pytest.approx(2.5)


def test_nothing_is_known_at_first() -> None:
    assert WaitEstimator().forecast(10) is None
    cold = steady(every=LEAST_SECONDS / 10, takes=5)
    assert cold.forecast(10) is None
    assert cold.forecast(0) is not None


def test_few_answers_say_nothing_of_the_service() -> None:
    pace = WaitEstimator()
    for _ in range(LEAST_SAMPLES - 1):
        pace.serve(0.5)
        assert pace.forecast(0) is None
    pace.serve(0.5)
    assert pace.forecast(0) is not None


def test_the_time_in_which_nobody_waited_does_not_count() -> None:
    pace = steady(tokens=10, every=0.1)
    pace.take(10, 5.0, left=False)  # the last one
    for later in (10.0, 20.0, 30.0):  # one by one: each finds an empty queue
        pace.take(1, later, left=False)
    forecast = pace.forecast(100)
    assert forecast is not None
    assert forecast.wait == pytest.approx(1.0)


def test_a_queue_that_was_left_by_all_is_empty() -> None:
    pace = steady(tokens=10, every=0.1)
    pace.pause()
    pace.take(10, 20.0, left=True)
    forecast = pace.forecast(100)
    assert forecast is not None
    assert forecast.wait == pytest.approx(1.0)


def test_rows_that_all_end_together_are_a_measure() -> None:
    pace = WaitEstimator()
    for index in range(20):
        pace.take(320, index * 1.0, left=True, fills=True)
        pace.serve(1.0)
    forecast = pace.forecast(640)
    assert forecast is not None
    assert forecast.wait == pytest.approx(2.0)


def test_rows_that_fill_an_idle_engine_are_no_measure_of_its_pace() -> None:
    pace = steady(tokens=10, every=0.1)
    for index in range(50):
        pace.take(1_000, 4.9 + index / 1_000, left=True, fills=True)
    forecast = pace.forecast(100)
    assert forecast is not None
    assert forecast.wait == pytest.approx(1.0)


def test_the_pace_of_late_counts_more() -> None:
    pace = steady(tokens=10, every=0.1)
    for index in range(100):
        pace.take(10, 5.0 + index * 0.2, left=True)
    forecast = pace.forecast(100)
    assert forecast is not None
    assert forecast.wait == pytest.approx(2.0, rel=0.05)


def test_what_was_long_ago_is_forgotten() -> None:
    pace = steady()
    pace.take(10, 5.0 + FORGET_SECONDS, left=True)
    assert pace.forecast(10) is None


def test_a_service_of_many_is_slower_than_of_few() -> None:
    service = Service()
    for load in (10, 20, 30, 40) * 10:
        service.add(0.1 + 0.01 * load, load)
    assert service.seconds(20) == pytest.approx(0.3, rel=0.1)
    assert service.seconds(60) == pytest.approx(0.7, rel=0.1)


def test_company_never_makes_a_row_faster_and_costs_no_more_than_its_share() -> None:
    falling, rising = Service(), Service()
    for load in (10, 20) * 20:
        falling.add(1 / load, load)
        rising.add(float(load**3), load)
    assert falling.seconds(100) >= falling.seconds(10)
    assert rising.seconds(30) < 30 * 20**3


def test_a_slow_answer_is_what_is_expected() -> None:
    service = Service()
    for seconds in (0.1, 0.3) * 40:
        service.add(seconds, 1)
    assert 0.3 < service.seconds(1) < 0.5


def test_calls_that_are_late_make_it_cautious() -> None:
    caution = Caution()
    caution.add(in_time=True)
    assert caution.factor == 1
    for _ in range(1_000):
        caution.add(in_time=False)
    assert caution.factor == GREATEST
    for _ in range(10_000):
        caution.add(in_time=True)
    assert caution.factor == 1


def test_it_comes_to_rest_where_few_are_late() -> None:
    """A call is in time if it was reckoned with half as much again as was foretold, or more."""
    caution, late = Caution(), 0
    for index in range(20_000):
        in_time = caution.factor >= 1.5
        late += index >= 10_000 and not in_time
        caution.add(in_time)
    assert late / 10_000 == pytest.approx(FALL / RISE, rel=0.1)


def test_a_text_weighs_what_the_latest_weighed() -> None:
    coming = IncomingTexts()
    assert coming.expect(2, 1_000) == ExpectedCall(2)
    coming.learn(250, 1_000)
    assert coming.expect(1, 400).tokens == 100
    for _ in range(200):
        coming.learn(500, 1_000)
    assert coming.expect(1, 400).tokens == 200


def test_who_is_tokenized_is_ahead() -> None:
    coming = IncomingTexts()
    coming.learn(250, 1_000)
    first = coming.expect(3, 400)
    with coming.hold(first), coming.hold(coming.expect(1, 40)):
        assert coming.expect(1, 4) == ExpectedCall(1, 1, 2, 110)
    assert coming.expect(1, 4) == ExpectedCall(1, 1)
