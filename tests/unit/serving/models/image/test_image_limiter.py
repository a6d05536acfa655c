"""Admission of images, and forecasts of their waiting time."""

from typing import Any

import pytest

from triptych_serving.errors import InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.models.image.image_limiter import ImageLimiter
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.wait_estimator import LEAST_SAMPLES, Forecast

ROW_SIZE = 4  # tokens of an image


class StubEngine:
    """An engine of which the queue alone counts; its forecast is `seconds` for each token ahead, at least `least`."""

    def __init__(self, waiting: int = 0, seconds: float = 0.0, least: float = 0.0, service: float = 0.5) -> None:
        self.waiting, self.seconds, self.least, self.service = waiting, seconds, least, service
        self.rejected = 0

    def count_rows(self) -> tuple[int, int]:
        return 1, self.waiting

    def forecast(self, tokens: int) -> Forecast:
        return Forecast(max(self.least, self.seconds * tokens), self.service)

    def count_rejected(self) -> None:
        self.rejected += 1


class Bench:
    """A limiter over a stub; an image is decoded every tenth of a second, in the time of the test."""

    def __init__(self, engine: StubEngine, **limits: Any) -> None:
        self.now = 100.0
        self.limiter = ImageLimiter(10, engine, ROW_SIZE, QueueLimits(**limits), lambda: self.now)  # type: ignore[arg-type]

    def admit(self, images: int, deadline: float | None = None) -> None:
        with self.limiter.admit(images, deadline):
            pass

    def decode(self, images: int, more: int = 0) -> None:
        """Let more images join than are decoded."""
        for _ in range(images + more):
            self.limiter.join()
        for _ in range(images):
            self.now += 0.1
            self.limiter.take()
            self.limiter.decoded(0.05)


def test_the_limiter_counts_held_images() -> None:
    bench = Bench(StubEngine())
    with pytest.raises(InvalidInputError, match="images: 11 in one request, at most 10 can wait; send fewer"):
        bench.admit(11)
    full = "the queue is full: 8 images are waiting, 3 more exceed the limit of 10"
    with bench.limiter.admit(8):
        with bench.limiter.admit(2):
            assert bench.limiter.held == 10
        with pytest.raises(OverloadedError, match=full) as error:
            bench.admit(3)
        assert error.value.retry_after_seconds > 0
    with pytest.raises(ZeroDivisionError), bench.limiter.admit(10):
        raise ZeroDivisionError
    assert bench.limiter.held == 0
    bench.limiter.close()
    with pytest.raises(UnavailableError):
        bench.admit(1)


def test_late_images_are_rejected() -> None:
    engine = StubEngine(waiting=1, least=3.0, service=1.0)
    bench = Bench(engine)
    with pytest.raises(OverloadedError, match=r"in 3.50 s cannot be met: expect 3.00 s of waiting and 1.00 s of work"):
        bench.admit(2, 103.5)
    assert (bench.limiter.held, engine.rejected) == (0, 1)
    with bench.limiter.admit(2, 104.5), bench.limiter.admit(1):
        assert bench.limiter.held == 3
    with pytest.raises(OverloadedError, match=r"the limit 2\.00 s"):
        Bench(engine, waiting_seconds=2.0).admit(1)


def test_a_full_limiter_returns_a_retry_delay() -> None:
    engine = StubEngine(waiting=1, least=3.0)
    bench = Bench(engine, waiting_calls=2)
    with bench.limiter.admit(1), bench.limiter.admit(1):
        with pytest.raises(OverloadedError, match="2 requests are waiting, 1 more exceed the limit of 2") as refused:
            bench.admit(1)
        assert refused.value.retry_after_seconds == 1.5
    with bench.limiter.admit(9), pytest.raises(OverloadedError, match="9 images are waiting, 2 more exceed"):
        bench.admit(2)
    assert engine.rejected == 2


@pytest.mark.parametrize(("least", "wait"), [(0.0, "2.00"), (9.0, "9.00")])
def test_the_forecast_is_that_of_the_slower_stage(least: float, wait: str) -> None:
    """20 images wait to be decoded, each for 0.1 s, which are 80 tokens for the engine."""
    bench = Bench(StubEngine(5, seconds=0.01, least=least))
    bench.decode(20, more=20)
    with pytest.raises(OverloadedError, match=f"expect {wait} s of waiting and 0.55 s of work"):
        bench.admit(1, bench.now)


def test_empty_queues_have_no_forecast() -> None:
    bench = Bench(StubEngine(least=9.0))
    bench.decode(20)
    bench.admit(1, bench.now)


def test_a_cancelled_image_leaves_the_queue() -> None:
    bench = Bench(StubEngine())
    bench.decode(LEAST_SAMPLES, more=1)
    bench.limiter.leave()
    assert bench.limiter.waiting == 0
