"""The error tree, and the gRPC status with details of each error."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2

from triptych_serving import errors
from triptych_serving.errors import BundleError, InvalidInputError, OverloadedError, ServingError
from triptych_serving.rpc.dispatch import request_id_of
from triptych_serving.rpc.status import REQUEST_ID, public_error, status_of


def subclasses(error: type[ServingError]) -> Iterator[type[ServingError]]:
    yield error
    for child in error.__subclasses__():
        yield from subclasses(child)


def make(error: type[ServingError], message: str) -> ServingError:
    if issubclass(error, InvalidInputError):
        return error("contents[3]", message)
    if issubclass(error, OverloadedError):
        return error(message, 0.25)
    return error("models/toy/1", [message, "and more"]) if issubclass(error, BundleError) else error(message)


ERRORS = list(subclasses(ServingError))


def detail(error: ServingError, kind: type[Message]) -> Message | None:
    for packed in status_of(error, "id-1").details:
        found = kind()
        if packed.Unpack(found):
            return found
    return None


def test_all_errors_are_serving_errors() -> None:
    assert {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)} == set(ERRORS)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_documented_and_becomes_a_status(kind: type[ServingError]) -> None:
    assert kind.status in grpc.StatusCode.__members__
    assert kind.status != "OK"
    lines = [line.lstrip("├└│─ ").split() for line in (errors.__doc__ or "").splitlines()]
    documented = next(line for line in lines if line[:1] == [kind.__name__])
    assert documented[1:2] == ([kind.status] if kind is not ServingError else [])
    error = make(kind, "broken")
    status = status_of(error, "id-1")
    assert code_pb2.Code.Name(status.code) == kind.status
    assert status.message == str(error)
    assert detail(error, error_details_pb2.RequestInfo) == error_details_pb2.RequestInfo(request_id="id-1")


def test_details() -> None:
    bad = InvalidInputError("contents[3]", "the text is empty")
    info = error_details_pb2.ErrorInfo(reason="INVALID_INPUT", domain="triptych")
    assert detail(bad, error_details_pb2.ErrorInfo) == info
    found = detail(bad, error_details_pb2.BadRequest)
    assert isinstance(found, error_details_pb2.BadRequest)
    [violation] = found.field_violations
    assert (violation.field, violation.description) == ("contents[3]", "the text is empty")
    assert detail(bad, error_details_pb2.RetryInfo) is None
    retry = detail(OverloadedError("full", 0.25), error_details_pb2.RetryInfo)
    assert isinstance(retry, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 250


def test_callers_do_not_see_folders_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    path = Path("/srv/my models/toy/1/scorer.onnx")
    shown = public_error(BundleError(path, [f"the runtime cannot load it: Load model from {path} failed"]), "id-1")
    assert str(shown) == "scorer.onnx: the runtime cannot load it: Load model from scorer.onnx failed"
    assert (type(shown), str(path) in caplog.text) == (BundleError, True)


@pytest.mark.parametrize("letter", ["a", "ü", "漢", "🙂"])
def test_long_message_fits_into_trailers(letter: str) -> None:
    status = status_of(InvalidInputError("model", letter * 100_000), "i" * 128)
    assert len(status.message.encode()) * 3 + status.ByteSize() * 4 / 3 < 7_000  # percent-encoded, and in base64
    assert status.message.startswith(f"model: {letter * 100}")


def test_message_is_one_line() -> None:
    assert status_of(errors.EngineError("first\nsecond\r\n  third"), "").message == "first second third"


def test_long_field_is_cut() -> None:
    status = status_of(InvalidInputError(f"parameters.{'x' * 50_000}", "unknown parameter"), "id-1")
    assert status.ByteSize() < 4_000
    found = detail(InvalidInputError("ä" * 500, "no"), error_details_pb2.BadRequest)
    assert isinstance(found, error_details_pb2.BadRequest)
    assert found.field_violations[0].field == "ä" * 100 + "..."


@pytest.mark.parametrize(
    ("given", "kept"),
    [("my-id 1", "my-id 1"), ("x" * 200, "x" * 128), ("", None), ("\xff\xfe", None), ("a\nb", None), (b"id", None)],
)
def test_request_ids_that_cannot_be_sent_back_are_replaced(given: str | bytes, kept: str | None) -> None:
    found = request_id_of({REQUEST_ID: given})
    assert found == kept if kept else len(found) == 32
