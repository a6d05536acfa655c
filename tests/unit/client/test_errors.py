"""Conversion of gRPC statuses to exceptions."""

import pickle

import grpc
import pytest
from google.rpc import error_details_pb2

import triptych_client
from triptych_client import (
    FieldViolation,
    InvalidArgumentError,
    ResourceExhaustedError,
    TriptychClientError,
    UnavailableError,
    errors,
)
from triptych_client.status import ERRORS

from .conftest import Ask
from .fake_server import FakeServer, bad_field, fail

FAILURES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TriptychClientError)]


def test_every_status_has_a_class_that_can_be_pickled() -> None:
    assert set(ERRORS) == set(grpc.StatusCode)
    assert set(ERRORS.values()) == set(CLASSES) - {TriptychClientError}
    error = pickle.loads(pickle.dumps(InvalidArgumentError("no", code="INVALID_ARGUMENT", request_id="mine")))
    assert (type(error), str(error)) == (InvalidArgumentError, "INVALID_ARGUMENT: no (request mine)")


@pytest.mark.parametrize("error", CLASSES)
def test_every_class_is_documented_and_public(error: type[TriptychClientError]) -> None:
    assert error.__name__ in (errors.__doc__ or "")
    assert getattr(triptych_client, error.__name__) is error


@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.name)
def test_statuses_become_errors(server: FakeServer, ask: Ask, code: grpc.StatusCode) -> None:
    server.script = [fail(code, "because")]
    with pytest.raises(ERRORS[code]) as caught:
        ask(server.address, lambda client: client.translate("a", request_id="mine"), retries=0)
    assert (caught.value.code, caught.value.message, caught.value.request_id) == (code.name, "because", "mine")
    assert str(caught.value) == f"{code.name}: because (request mine)"


def test_details_of_errors(server: FakeServer, ask: Ask) -> None:
    info = error_details_pb2.ErrorInfo(reason="EMPTY_TEXT")
    server.script = [fail(grpc.StatusCode.INVALID_ARGUMENT, "bad request", info, bad_field("contents[1]"))]
    with pytest.raises(InvalidArgumentError, match=r"contents\[1\]: is empty") as caught:
        ask(server.address, lambda client: client.translate_many(["a", ""], fail_fast=True))
    assert caught.value.violations == (FieldViolation("contents[1]", "is empty"),)
    assert caught.value.reason == "EMPTY_TEXT"
    server.script = [fail(grpc.StatusCode.INVALID_ARGUMENT, "contents[1]: is empty", bad_field("contents[1]"))]
    with pytest.raises(InvalidArgumentError) as caught:
        ask(server.address, lambda client: client.translate_many(["a", ""], fail_fast=True))
    assert str(caught.value).count("is empty") == 1

    def step(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata([("grpc-status-details-bin", b"\xff\xff")])
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "because")

    server.script = [step]
    with pytest.raises(InvalidArgumentError, match="because"):
        ask(server.address, lambda client: client.translate("a"))


@pytest.mark.parametrize("length", [2000, 900], ids=["request", "response"])
def test_a_message_above_the_clients_limit_names_the_setting(server: FakeServer, ask: Ask, length: int) -> None:
    # The response has the text twice.
    with pytest.raises(ResourceExhaustedError, match="`max_message_bytes` of the client"):
        ask(server.address, lambda client: client.translate("a" * length), max_message_bytes=1000)
    assert len(server.requests) == (length < 1000)


def test_missing_and_strict_servers(ask: Ask) -> None:
    with FakeServer(receive_bytes=1000) as server, pytest.raises(ResourceExhaustedError, match="the server's message size"):
        ask(server.address, lambda client: client.translate("a" * 2000))
    with FakeServer() as server:
        address = server.address
    with pytest.raises(UnavailableError):
        ask(address, lambda client: client.translate("a"), retries=1)
