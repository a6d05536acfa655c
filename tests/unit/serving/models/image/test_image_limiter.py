"""Admission of images, and forecasts of their waiting time."""

from collections.abc import Callable

import pytest

from triptych_serving.errors import InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.models.image.image_job import DecodeQueue
from triptych_serving.models.image.image_limiter import ImageLimiter
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.wait_estimator import LEAST_SAMPLES, Forecast


class StubLine(DecodeQueue):
    """Knows what it is told."""

    def __init__(self, forecast: Forecast | None = None) -> None:
        self.known = forecast
        self.asked: list[int] = []
        self.rejected = 0

    def forecast(self, images: int) -> Forecast | None:
        self.asked.append(images)
        return self.known

    def count_rejected(self) -> None:
        self.rejected += 1


class StubEngine:
    """An engine of which the queue alone counts."""

    def __init__(self, waiting: int = 0, forecast: Callable[[int], Forecast | None] = lambda tokens: None) -> None:
        self.waiting = waiting
        self.forecast = forecast
        self.rejected = 0

    def load(self) -> tuple[int, int]:
        return 1, self.waiting

    def count_rejected(self) -> None:
        self.rejected += 1


def test_the_limiter_counts_held_images() -> None:
    limiter = ImageLimiter(10, StubLine(), QueueLimits())

    def admit(images: int) -> None:
        with limiter.admit(images):
            pass

    with pytest.raises(InvalidInputError, match="images: 11 in one request, at most 10 can wait; send fewer"):
        admit(11)
    full = "the queue is full: 8 images are waiting, 3 more exceed the limit of 10"
    with limiter.admit(8):
        with limiter.admit(2):
            assert limiter.held == 10
        with pytest.raises(OverloadedError, match=full) as error:
            admit(3)
        assert error.value.retry_after_seconds > 0
    with pytest.raises(ZeroDivisionError), limiter.admit(10):
        raise ZeroDivisionError
    assert limiter.held == 0
    limiter.close()
    with pytest.raises(UnavailableError):
        admit(1)


def test_late_images_are_rejected() -> None:
    line = StubLine(Forecast(3.0, 1.0))
    limiter = ImageLimiter(10, line, QueueLimits(), lambda: 100.0)
    late = r"in 3.50 s cannot be met: expect 3.00 s of waiting and 1.00 s of work"
    with pytest.raises(OverloadedError, match=late), limiter.admit(2, 103.5):
        pass
    assert (limiter.held, line.rejected, line.asked) == (0, 1, [2])
    with limiter.admit(2, 104.5), limiter.admit(1):
        assert limiter.held == 3
    impatient = ImageLimiter(10, line, QueueLimits(waiting_seconds=2.0), lambda: 100.0)
    with pytest.raises(OverloadedError, match=r"the limit 2\.00 s"), impatient.admit(1):
        pass


def test_a_full_limiter_returns_a_retry_delay() -> None:
    line = StubLine(Forecast(3.0, 1.0))
    limiter = ImageLimiter(10, line, QueueLimits(waiting_calls=2))
    full = "2 requests are waiting, 1 more exceed the limit of 2"
    with limiter.admit(1), limiter.admit(1):
        with pytest.raises(OverloadedError, match=full) as refused, limiter.admit(1):
            pass
        assert refused.value.retry_after_seconds == 1.5
    with limiter.admit(9), pytest.raises(OverloadedError, match="9 images are waiting, 2 more exceed"), limiter.admit(2):
        pass
    assert line.rejected == 2


class Pool:
    """Decodes an image every tenth of a second, in the time of the test."""

    def __init__(self, engine: StubEngine) -> None:
        self.now = 0.0
        self.queue = DecodeQueue(engine, 4, lambda: self.now)  # type: ignore[arg-type]

    def join(self, images: int) -> None:
        for _ in range(images):
            self.queue.join()

    def decode(self, images: int) -> None:
        for _ in range(images):
            self.now += 0.1
            self.queue.take()
            self.queue.decoded(0.05)


def test_the_forecast_is_that_of_the_slower_stage() -> None:
    asked: list[int] = []

    def forecast(tokens: int) -> Forecast:
        asked.append(tokens)
        return Forecast(tokens / 100, 0.5)

    pool = Pool(StubEngine(5, forecast))
    pool.join(40)
    pool.decode(20)
    assert pool.queue.forecast(1) == Forecast(pytest.approx(2.0), pytest.approx(0.55))
    assert asked == [20 * 4]
    pool.queue._engine.forecast = lambda tokens: Forecast(9.0, 0.5)  # type: ignore[method-assign]
    assert pool.queue.forecast(11) == Forecast(pytest.approx(9.0), pytest.approx(0.55))


def test_empty_queues_have_no_forecast() -> None:
    pool = Pool(StubEngine(0, lambda tokens: Forecast(9.0, 9.0)))
    pool.join(20)
    pool.decode(20)
    assert pool.queue.forecast(1) is None


def test_a_cancelled_image_leaves_the_queue() -> None:
    engine = StubEngine()
    pool = Pool(engine)
    pool.join(LEAST_SAMPLES + 1)
    pool.decode(LEAST_SAMPLES)
    pool.queue.leave()
    assert pool.queue.waiting == 0
    pool.queue.count_rejected()
    assert engine.rejected == 1
