"""Limits of queues, clients and messages: what they are made of, and who is refused."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from triptych_cli.serve import limits as limit_flags
from triptych_serving.errors import OverloadedError, TooLargeError
from triptych_serving.rpc.call_context import Rpc
from triptych_serving.rpc.client_limit import ClientLimit, client_of
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.rpc.message_size import CORE_BYTES, MessageLimit

NO_CONTEXT: Any = None


def call_from(peer: str = "ipv4:10.0.0.1:40000", principal: str = "", service: str = "triptych.v1.TranslationService") -> Any:
    return SimpleNamespace(peer=peer, principal=principal, service=service)


@pytest.mark.parametrize(
    ("peer", "principal", "client"),
    [
        ("ipv4:10.0.0.1:40000", "", "10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:40000", "", "[2001:db8::1]"),
        ("ipv6:[::1]:40000", "", "[::1]"),
        ("unix:/run/triptych.sock", "", "unix"),
        ("ipv4:10.0.0.1:40000", "alice", "alice"),
    ],
)
def test_a_client_is_its_name_or_its_address(peer: str, principal: str, client: str) -> None:
    assert client_of(call_from(peer, principal)) == client


def held(limit: ClientLimit, call: Rpc) -> AbstractContextManager[None]:
    """A place."""
    place = limit.admit(call, NO_CONTEXT)
    assert place is not None
    return place


def test_a_client_has_so_many_calls_at_a_time() -> None:
    limit = ClientLimit(2)
    with ExitStack() as calls:
        for port in (1, 2):
            calls.enter_context(held(limit, call_from(f"ipv4:10.0.0.1:{port}")))
        with pytest.raises(
            OverloadedError, match=r"client 10.0.0.1 has 2 calls under way.*--max-requests-per-client"
        ) as refused:
            limit.admit(call_from("ipv4:10.0.0.1:3"), NO_CONTEXT)
        assert refused.value.retry_after_seconds > 0
        for other in (call_from("ipv4:10.0.0.2:1"), call_from(principal="alice")):
            calls.enter_context(held(limit, other))
        assert limit.admit(call_from(service="grpc.health.v1.Health"), NO_CONTEXT) is None
    for _ in range(3):
        with held(limit, call_from()):
            pass
    assert not limit._running


def test_a_call_that_fails_gives_its_place_back() -> None:
    limit = ClientLimit(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), held(limit, call_from()):
            raise ZeroDivisionError


def test_without_a_limit_nobody_is_counted() -> None:
    limit = ClientLimit(0)
    for _ in range(100):
        assert limit.admit(call_from(), NO_CONTEXT) is None
    assert not limit._running


@pytest.mark.parametrize("check", [lambda limit: limit.check_request, lambda limit: limit.check_response])
def test_a_message_that_is_too_large_is_told_by_how_much(check: Callable[[MessageLimit], Callable[[int], None]]) -> None:
    limit = MessageLimit(1_000_000)
    check(limit)(1_000_000)
    with pytest.raises(TooLargeError, match=r"1,000,001 bytes.*at most 1,000,000 \(--max-message-bytes\)") as refused:
        check(limit)(1_000_001)
    assert "raise the server's message size limit" in str(refused.value)


def test_grpc_itself_takes_more_so_that_it_can_be_refused_in_plain_words() -> None:
    assert dict(MessageLimit(1_000).channel_options)["grpc.max_receive_message_length"] > 1_000
    assert dict(MessageLimit(2**31 - 1).channel_options)["grpc.max_receive_message_length"] == CORE_BYTES


@pytest.mark.parametrize(
    "name", ["queue_requests", "queue_rows", "queue_tokens", "queue_seconds", "message_bytes", "documents", "document_bytes"]
)
def test_a_limit_that_leaves_no_room_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0, it must be above 0"):
        LimitOptions(**{name: 0})


def test_fewer_than_no_calls_of_a_client_are_refused() -> None:
    with pytest.raises(ValueError, match="requests_per_client is -1"):
        LimitOptions(requests_per_client=-1)


def read(*arguments: str, **environment: str) -> LimitOptions:
    found: list[LimitOptions] = []

    @click.command()
    @limit_flags.flags
    def command(**values: Any) -> None:
        found.append(limit_flags.read(values))
        assert not values

    result = CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_flags_have_the_defaults_of_the_options() -> None:
    assert read() == LimitOptions()


def test_flags_and_their_environment() -> None:
    given = read(
        "--max-queue-requests=1", "--max-queue-rows=2", "--max-queue-tokens=3", "--max-queue-secs=4.5", "--no-refuse-late",
        TRIPTYCH_MAX_REQUESTS_PER_CLIENT="5", TRIPTYCH_MAX_MESSAGE_BYTES="2048",
        TRIPTYCH_MAX_DOCUMENTS="6", TRIPTYCH_MAX_DOCUMENT_BYTES="7",
    )  # fmt: skip
    assert given == LimitOptions(1, 2, 3, 4.5, False, 5, 2048, 6, 7)
    queue = given.queue
    assert (queue.waiting_calls, queue.waiting_rows, queue.waiting_tokens) == (1, 2, 3)
    assert (queue.waiting_seconds, queue.refuses_late) == (4.5, False)
    assert math.isinf(read("--max-queue-secs=0").queue_seconds)
