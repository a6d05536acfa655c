"""Limits of queues, clients and messages, and their command-line flags."""

import math
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields, replace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from triptych_cli.serve import flags as serve_flags
from triptych_serving.errors import OverloadedError, TooLargeError
from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, MethodType, Observers
from triptych_serving.rpc.limits import MAX_MESSAGE_BYTES, ClientLimit, LimitOptions, MessageLimit, WatcherLimit, client_of

NO_CONTEXT: Any = None


def call_from(
    peer: str = "ipv4:10.0.0.1:40000", principal: str = "", service: str = "triptych.v1.TranslationService"
) -> CallContext:
    return CallContext(service, "Any", "unary", "id", peer, {}, ModelLeases(), Observers(), principal=principal)


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
def test_client_is_the_principal_or_the_address(peer: str, principal: str, client: str) -> None:
    assert client_of(call_from(peer, principal)) == client


def admitted(limit: ClientLimit | WatcherLimit, call: CallContext) -> AbstractContextManager[None]:
    assert limit.concerns(call.service, call.method, call.method_type)
    return limit.admit(call, NO_CONTEXT)


def test_concurrent_calls_of_a_client_are_limited() -> None:
    limit = ClientLimit(2)
    with ExitStack() as calls:
        for port in (1, 2):
            calls.enter_context(admitted(limit, call_from(f"ipv4:10.0.0.1:{port}")))
        message = r"client 10.0.0.1 has 2 calls in progress, at most 2 are allowed \(--max-requests-per-client"
        with pytest.raises(OverloadedError, match=message) as rejected:
            limit.admit(call_from("ipv4:10.0.0.1:3"), NO_CONTEXT)
        assert rejected.value.retry_after_seconds > 0
        for other in (call_from("ipv4:10.0.0.2:1"), call_from(principal="alice")):
            calls.enter_context(admitted(limit, other))
    for _ in range(3):
        with admitted(limit, call_from()):
            pass
    with pytest.raises(ZeroDivisionError), admitted(limit, call_from()):
        raise ZeroDivisionError
    assert not limit._running


def test_streams_of_health_checks_are_limited_in_all_and_for_each_client() -> None:
    def watch(host: int) -> CallContext:
        return replace(call_from(f"ipv4:10.0.0.{host}:1", service="grpc.health.v1.Health"), method_type="server_stream")

    limit = WatcherLimit(8)
    with ExitStack() as streams:
        for host in range(4):
            for _ in range(2):
                streams.enter_context(admitted(limit, watch(host)))
            with pytest.raises(OverloadedError, match=f"10.0.0.{host} has 2 open|the server has 8 open"):
                limit.admit(watch(host), NO_CONTEXT)
        with pytest.raises(OverloadedError, match=r"the server has 8 open .*, at most 8 are allowed \(--max-health-watchers\)"):
            limit.admit(watch(9), NO_CONTEXT)
    assert not limit._running


@pytest.mark.parametrize(
    ("limit", "service", "method", "method_type"),
    [
        (ClientLimit(0), "triptych.v1.TranslationService", "Translate", "unary"),  # unlimited
        (ClientLimit(2), "grpc.health.v1.Health", "Check", "unary"),
        (ClientLimit(2), "inference.GRPCInferenceService", "ServerLive", "unary"),
        (ClientLimit(2), "inference.GRPCInferenceService", "ServerReady", "unary"),
        (WatcherLimit(8), "grpc.health.v1.Health", "Check", "unary"),
        (WatcherLimit(8), "triptych.v1.TranslationService", "TranslateStream", "bidi_stream"),
    ],
)
def test_other_calls_are_not_limited(limit: ClientLimit, service: str, method: str, method_type: MethodType) -> None:
    assert not limit.concerns(service, method, method_type)


@pytest.mark.parametrize("direction", ["request", "response"])
def test_oversized_message_is_rejected_with_size_limit_and_flag(direction: str) -> None:
    check = getattr(MessageLimit(1_000_000), f"check_{direction}")
    check(1_000_000)
    message = rf"^{direction} .* 1,000,001 bytes, at most 1,000,000 .* \(--max-message-bytes\): .* raise the server's"
    with pytest.raises(TooLargeError, match=message):
        check(1_000_001)


def test_requests_with_texts_have_a_limit_of_their_own() -> None:
    limit = MessageLimit(1_000, text_limit=100)
    limit.check_request(1_000)
    with pytest.raises(TooLargeError, match=r"^request has 101 bytes, at most 100 .* \(--max-text-message-bytes\)"):
        limit.check_request(101, has_texts=True)
    with pytest.raises(TooLargeError, match=r"at most 1,000 are accepted \(--max-message-bytes\)"):
        MessageLimit(1_000, 2_000).check_request(1_001, has_texts=True)


def test_grpc_core_accepts_more_than_the_limit() -> None:
    assert dict(MessageLimit(1_000).channel_options)["grpc.max_receive_message_length"] > 1_000
    assert dict(MessageLimit(2**31 - 1).channel_options)["grpc.max_receive_message_length"] == MAX_MESSAGE_BYTES


def test_limits_of_zero_are_rejected_and_negative_ones() -> None:
    for name in {field.name for field in fields(LimitOptions)} - {"refuse_late", "requests_per_client"}:
        with pytest.raises(ValueError, match=f"{name} is 0, must be above 0"):
            LimitOptions(**{name: 0})
    with pytest.raises(ValueError, match="requests_per_client is -1"):
        LimitOptions(requests_per_client=-1)


def read(*arguments: str, **environment: str) -> LimitOptions:
    found: list[LimitOptions] = []

    @click.command()
    @serve_flags.limits
    def command(**values: Any) -> None:
        found.append(serve_flags.take_limits(values))
        assert not values

    result = CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_flags_and_environment() -> None:
    assert read() == LimitOptions()
    given = read(
        "--max-queue-requests=1", "--max-queue-rows=2", "--max-queue-tokens=3", "--max-queue-secs=4.5", "--no-refuse-late",
        TRIPTYCH_MAX_REQUESTS_PER_CLIENT="5", TRIPTYCH_MAX_MESSAGE_BYTES="2048",
        TRIPTYCH_MAX_DOCUMENTS="6", TRIPTYCH_MAX_DOCUMENT_BYTES="7",
        TRIPTYCH_MAX_DOCUMENT_SECS="8", TRIPTYCH_MAX_HEALTH_WATCHERS="9", TRIPTYCH_MAX_TEXT_MESSAGE_BYTES="1024",
        TRIPTYCH_MAX_REQUEST_CHARACTERS="10", TRIPTYCH_MAX_DECODE_TOKENS="11",
    )  # fmt: skip
    assert given == LimitOptions(1, 2, 3, 4.5, False, 5, 2048, 6, 7, 8, 9, 1024, 10, 11)
    queue = given.queue
    assert (queue.request_characters, queue.decode_tokens, queue.result_bytes) == (10, 11, 2048)
    assert (queue.waiting_calls, queue.waiting_rows, queue.waiting_tokens) == (1, 2, 3)
    assert (queue.waiting_seconds, queue.refuses_late) == (4.5, False)
    assert math.isinf(read("--max-queue-secs=0").queue_seconds)
