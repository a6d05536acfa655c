"""One tree of errors, each with its status."""

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2

from triptych_serving import errors
from triptych_serving.errors import BundleError, InvalidInputError, OverloadedError, ServingError
from triptych_serving.rpc.status import status_of


def subclasses(kind: type[ServingError]) -> Iterator[type[ServingError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from subclasses(child)


def make(kind: type[ServingError], message: str) -> ServingError:
    if issubclass(kind, InvalidInputError):
        return kind("contents[3]", message)
    if issubclass(kind, OverloadedError):
        return kind(message, 0.25)
    return kind("models/toy/1", [message, "and more"]) if issubclass(kind, BundleError) else kind(message)


KINDS = list(subclasses(ServingError))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def detail(error: ServingError, kind: type[Message]) -> Message | None:
    for packed in status_of(error, "id-1").details:
        found = kind()
        if packed.Unpack(found):
            return found
    return None


def test_the_tree_is_the_whole_of_it() -> None:
    assert {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ServingError)} == set(KINDS)


@each_kind
def test_every_error_has_a_status_of_grpc(kind: type[ServingError]) -> None:
    assert kind.status in grpc.StatusCode.__members__
    assert kind.status != "OK"


@each_kind
def test_the_docstring_draws_every_error_with_its_status(kind: type[ServingError]) -> None:
    assert errors.__doc__ is not None
    lines = [line.lstrip("├└│─ ").split() for line in errors.__doc__.splitlines()]
    drawn = next(line for line in lines if line[:1] == [kind.__name__])
    assert drawn[1:2] == ([kind.status] if kind is not ServingError else [])


@each_kind
def test_every_error_becomes_a_status(kind: type[ServingError]) -> None:
    error = make(kind, "it is broken")
    status = status_of(error, "id-1")
    assert code_pb2.Code.Name(status.code) == kind.status
    assert status.message == str(error)
    request = detail(error, error_details_pb2.RequestInfo)
    assert isinstance(request, error_details_pb2.RequestInfo)
    assert request.request_id == "id-1"


def test_the_reason_is_the_errors_name() -> None:
    info = detail(InvalidInputError("model", "no"), error_details_pb2.ErrorInfo)
    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("INVALID_INPUT", "triptych")


def test_a_bad_field_is_a_detail() -> None:
    bad = detail(InvalidInputError("contents[3]", "the text is empty"), error_details_pb2.BadRequest)
    assert isinstance(bad, error_details_pb2.BadRequest)
    [violation] = bad.field_violations
    assert (violation.field, violation.description) == ("contents[3]", "the text is empty")


def test_when_to_come_back_is_a_detail() -> None:
    retry = detail(OverloadedError("full", 0.25), error_details_pb2.RetryInfo)
    assert isinstance(retry, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 250
    assert detail(InvalidInputError("model", "no"), error_details_pb2.RetryInfo) is None


@pytest.mark.parametrize("letter", ["a", "ü", "漢", "🙂"])
def test_a_message_of_any_length_fits_into_trailers(letter: str) -> None:
    status = status_of(InvalidInputError("model", letter * 100_000), "i" * 128)
    assert len(status.message.encode()) * 3 + status.ByteSize() * 4 / 3 < 7_000  # percent-encoded, and in base64
    assert status.message.startswith(f"model: {letter * 100}")


def test_a_message_is_one_line() -> None:
    assert status_of(errors.EngineError("first\nsecond\r\n  third"), "").message == "first second third"


def test_a_field_that_a_caller_made_up_is_cut() -> None:
    status = status_of(InvalidInputError(f"parameters.{'x' * 50_000}", "there is no such parameter"), "id-1")
    assert status.ByteSize() < 4_000
    found = detail(InvalidInputError("ä" * 500, "no"), error_details_pb2.BadRequest)
    assert isinstance(found, error_details_pb2.BadRequest)
    assert found.field_violations[0].field == "ä" * 100 + "..."
