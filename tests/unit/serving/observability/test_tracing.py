"""When traces are sent, under which service name, and how shutdown ends them."""

import asyncio
import sys
import time

import pytest

from triptych.version import __version__
from triptych_serving.errors import UnsupportedError
from triptych_serving.observability import observability
from triptych_serving.observability.observability import Tracing, wants_traces
from triptych_serving.observability.spans import make_provider

from .calls import run_call

UNREACHABLE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES")
    for name in (*names, *observability.ENDPOINTS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("endpoint", "variables", "wanted"),
    [
        ("", {}, False),
        (UNREACHABLE, {}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": UNREACHABLE}, True),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": UNREACHABLE}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": UNREACHABLE, "OTEL_TRACES_EXPORTER": "none"}, False),
        (UNREACHABLE, {"OTEL_TRACES_EXPORTER": "none"}, True),  # the flag overrides the variable
        (UNREACHABLE, {"OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_wants_traces(monkeypatch: pytest.MonkeyPatch, endpoint: str, variables: dict[str, str], wanted: bool) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_traces(endpoint) is wanted


@pytest.mark.parametrize(("name", "value"), [("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")])
def test_an_unusable_variable_is_a_serving_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UnsupportedError, match=rf"cannot be used: .*{value}.*; set are .*{name}"):
        Tracing(UNREACHABLE)


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "triptych"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,service.namespace=ours"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.namespace=ours"}, "triptych"),
    ],
)
def test_service_name(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    provider = make_provider(UNREACHABLE)
    assert provider.resource.attributes["service.name"] == name
    assert provider.resource.attributes["service.version"] == __version__
    provider.shutdown()


@pytest.mark.parametrize(
    ("endpoint", "protocol", "warns"), [("", "http/protobuf", True), ("", "grpc", False), (UNREACHABLE, "http/protobuf", False)]
)
def test_variables_for_another_protocol_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, endpoint: str, protocol: str, warns: bool
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    make_provider(endpoint).shutdown()
    assert ("OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf" in caplog.text) is warns


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triptych_serving.observability.spans", raising=False)
    monkeypatch.delattr("triptych_serving.observability.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(UnsupportedError, match=r"is not installed; run: pip install .*\[otel\]"):
        Tracing(UNREACHABLE)


def test_shutdown_does_not_wait_for_an_unreachable_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observability, "FLUSH_SECONDS", 0.2)

    async def scenario() -> float:
        tracing_ = Tracing(UNREACHABLE)
        run_call(tracing_.observer)
        began = time.monotonic()
        await tracing_.stop()
        assert tracing_.is_sending  # the process must not wait for that thread
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 8  # the exporter alone would try for 10 seconds
