"""Whether there are traces, and under which name they are sent."""

import asyncio
import sys
import time

import pytest

from triptych.version import __version__
from triptych_serving.errors import UnsupportedError
from triptych_serving.observability import tracing
from triptych_serving.observability.exporter import make_provider
from triptych_serving.observability.tracing import Tracing, wants_traces

from .calls import run_call

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SDK_DISABLED", "TRACES_EXPORTER", "SERVICE_NAME", "RESOURCE_ATTRIBUTES", *_endpoints()):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)


def _endpoints() -> list[str]:
    return [name.removeprefix("OTEL_") for name in tracing.ENDPOINTS]


@pytest.mark.parametrize(
    ("endpoint", "variables", "wanted"),
    [
        ("", {}, False),
        (NOBODY, {}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": NOBODY}, True),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": NOBODY}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": NOBODY, "OTEL_TRACES_EXPORTER": "none"}, False),
        (NOBODY, {"OTEL_TRACES_EXPORTER": "none"}, True),  # the flag counts more
        (NOBODY, {"OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_who_wants_traces(monkeypatch: pytest.MonkeyPatch, endpoint: str, variables: dict[str, str], wanted: bool) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_traces(endpoint) is wanted


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "triptych"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,service.namespace=ours"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.namespace=ours"}, "triptych"),
    ],
)
def test_the_name_of_the_service(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    provider = make_provider(NOBODY)
    assert provider.resource.attributes["service.name"] == name
    assert provider.resource.attributes["service.version"] == __version__
    provider.shutdown()


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("exporter", "spans"):
        monkeypatch.delitem(sys.modules, f"triptych_serving.observability.{name}", raising=False)
        monkeypatch.delattr(f"triptych_serving.observability.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(UnsupportedError, match=r'is not installed; run: pip install "triptych\[otel\]"'):
        Tracing(NOBODY)


def test_the_end_waits_for_nobody_who_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.2)

    async def scenario() -> float:
        to_nobody = Tracing(NOBODY)
        run_call(to_nobody.observer)
        began = time.monotonic()
        await to_nobody.stop()
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 8  # the exporter alone would try for 10 seconds
