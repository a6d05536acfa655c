"""Retries, deadlines and cancellation of unary calls."""

import contextlib
from collections.abc import Iterator

import grpc
import pytest

from triptych_client import (
    DeadlineExceededError,
    NotFoundError,
    ResourceExhaustedError,
    ServerError,
    TriptychClientError,
    UnavailableError,
)
from triptych_client.call import Attempts, Call

from ...fixtures.clock import Clock
from .conftest import Ask
from .fake_server import FakeServer, Step, fail, retry_after

UNAVAILABLE = fail(grpc.StatusCode.UNAVAILABLE)


BUSY = fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", retry_after(seconds=0.001))


@pytest.mark.parametrize("script", [[UNAVAILABLE, UNAVAILABLE], [BUSY]], ids=["unavailable", "full queue with delay"])
def test_transient_failures_are_retried(server: FakeServer, ask: Ask, script: list[Step]) -> None:
    server.script = list(script)
    result = ask(server.address, lambda client: client.translate("a"))
    assert result.text == "A"
    assert server.request_ids == [result.request_id] * (len(script) + 1)
    server.script = [UNAVAILABLE] * 8
    assert ask(server.address, lambda client: client.translate("a")).text == "A"
    server.requests.clear()
    server.script = [UNAVAILABLE] * 6
    with pytest.raises(UnavailableError):
        ask(server.address, lambda client: client.embed("a"), retries=2)
    with pytest.raises(UnavailableError):
        ask(server.address, lambda client: client.embed("a", retries=1))
    assert len(server.requests) == 3 + 2


def test_calls_that_a_closing_server_resets_are_retried(server: FakeServer, ask: Ask) -> None:
    server.script = [lambda context: context.cancel()]  # without a status or metadata
    assert ask(server.address, lambda client: client.translate("a")).text == "A"
    assert len(server.requests) == 2


@pytest.mark.parametrize("retries", [-1, 1.5, "1"])
def test_retries_are_a_whole_number(server: FakeServer, ask: Ask, retries: object) -> None:
    with pytest.raises(ValueError, match=r"retries is .*, must be a whole number of 0 or more"):
        ask(server.address, lambda client: client.translate("a", retries=retries))
    with pytest.raises(ValueError, match=r"retries is "):
        ask(server.address, lambda client: client.translate("a"), retries=retries)


def test_a_delay_beyond_the_deadline_is_an_error(server: FakeServer, ask: Ask) -> None:
    server.script = [fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", retry_after(seconds=900))]
    with pytest.raises(ResourceExhaustedError, match="queue full") as caught:
        ask(server.address, lambda client: client.translate("a"))
    assert caught.value.retry_delay_seconds == 900
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhaustedError),
        (grpc.StatusCode.NOT_FOUND, NotFoundError),
        (grpc.StatusCode.INTERNAL, ServerError),
    ],
)
def test_lasting_failures_are_not_retried(
    server: FakeServer, ask: Ask, code: grpc.StatusCode, error: type[TriptychClientError]
) -> None:
    server.script = [fail(code)]
    with pytest.raises(error):
        ask(server.address, lambda client: client.translate("a"))
    assert len(server.requests) == 1


def test_deadline(server: FakeServer, ask: Ask) -> None:
    server.script = [lambda context: server.hang.wait()]
    with pytest.raises(DeadlineExceededError):
        ask(server.address, lambda client: client.translate("a", timeout_seconds=0.2))


def test_one_failure_cancels_the_other_requests(server: FakeServer, ask: Ask) -> None:
    # All requests but one would never end. A fourth may start before the failure cancels the others.
    hang = [lambda context: server.hang.wait()] * 6
    server.script = [*hang[:2], fail(grpc.StatusCode.NOT_FOUND, "gone"), *hang]
    with pytest.raises(NotFoundError, match="gone"):
        ask(server.address, lambda client: client.translate_many(["a"] * 6), texts_per_call=1, concurrency=3)
    assert len(server.requests) <= 4


def pauses_until_error(attempts: Attempts, clock: Clock) -> Iterator[float]:
    with contextlib.suppress(UnavailableError):
        while True:
            pause = attempts.pause_after(UnavailableError("no"))
            clock.now += pause
            yield pause


def test_pauses_grow_up_to_a_limit_and_keep_the_servers_delay() -> None:
    clock = Clock()
    pauses = list(pauses_until_error(Attempts(Call("", 60.0), clock), clock))
    assert pauses[0] <= 0.001
    assert 2.5 <= max(pauses) <= 5.0
    assert 59.8 < clock.now < 60.0
    assert len(list(pauses_until_error(Attempts(Call("", 60.0, retries=3), clock), clock))) == 3
    attempts = Attempts(Call("", 60.0, retries=1))
    assert attempts.pause_after(ResourceExhaustedError("full", retry_delay_seconds=7.0)) >= 7.0
    with pytest.raises(ResourceExhaustedError):
        attempts.pause_after(ResourceExhaustedError("full", retry_delay_seconds=7.0))
