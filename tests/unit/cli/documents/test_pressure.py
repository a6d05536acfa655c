"""How much a server is asked at once."""

import pytest

from triptych_cli.documents.pressure import Pressure
from triptych_client import ResourceExhaustedError, UnavailableError
from triptych_embedded.request import BackendError

FULL = ResourceExhaustedError("the queue is full", code="RESOURCE_EXHAUSTED", retry_delay_seconds=2.0)
AWAY = UnavailableError("nobody there", code="UNAVAILABLE")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def start(most: int = 8) -> tuple[Pressure, Clock]:
    clock = Clock()
    return Pressure(most, 60.0, clock), clock


def test_it_grows_by_one_a_round_up_to_the_most() -> None:
    pressure, _ = start()
    assert pressure.room() == 2
    for _ in range(3):
        pressure.succeeded()
    assert pressure.room() == 3
    for _ in range(100):
        pressure.succeeded()
    assert pressure.room() == 8


def test_a_refusal_halves_it_after_the_pause_that_the_server_asks_for() -> None:
    pressure, clock = start()
    for _ in range(100):
        pressure.succeeded()
    pressure.refused(FULL)
    assert pressure.room() == 0
    assert 2.0 < pressure.pause_seconds() < 2.2
    for _ in range(7):  # the others that were under way
        pressure.refused(FULL)
    clock.now += 2.2
    assert pressure.room() == 4


def test_it_never_stops_asking_while_there_is_patience() -> None:
    pressure, clock = start()
    pauses = []
    while clock.now < 59.0:
        pressure.refused(AWAY)
        assert pressure.pause_seconds() > 0
        pauses.append(pressure.pause_seconds())
        clock.now += pauses[-1] + 1e-6
        assert pressure.room() >= 1
    assert pauses[0] <= 0.1
    assert 5.0 <= max(pauses) <= 10.0
    clock.now = 75.0
    with pytest.raises(BackendError, match="no answer for 75 s: UNAVAILABLE: nobody there"):
        pressure.refused(AWAY)


def test_an_answer_gives_new_patience() -> None:
    pressure, clock = start()
    pressure.refused(AWAY)
    clock.now = 50.0
    pressure.succeeded()
    clock.now = 100.0
    pressure.refused(AWAY)
    clock.now = 150.0
    pressure.refused(AWAY)
    assert pressure.pause_seconds() > 0
