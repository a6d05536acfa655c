"""`triptych serve`: what its flags about metrics, traces and logs become."""

import pytest

from triptych_serving import server
from triptych_serving.observability import logs
from triptych_serving.observability.options import JSON, TEXT, ObservabilityOptions
from triptych_serving.server import ServerOptions

from ..conftest import Run


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ObservabilityOptions]:
    """What servers would have been started with, and their logs set up with."""
    served: list[ObservabilityOptions] = []

    async def serve(options: ServerOptions) -> None:
        assert served == [options.observability]

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(logs, "configure_logs", served.append)
    return served


def test_defaults(run: Run, served: list[ObservabilityOptions]) -> None:
    assert run("serve").code == 0
    assert served == [ObservabilityOptions(8002, "0.0.0.0", "", access_log=False, log_format=TEXT, log_level="info")]


def test_all_flags(run: Run, served: list[ObservabilityOptions]) -> None:
    metrics = ("--metrics-port", "9000", "--metrics-host", "127.0.0.1", "--otlp-endpoint", "https://collector:4317")
    assert run("serve", *metrics, "--access-log", "--log-format", "json", "--log-level", "debug").code == 0
    assert served == [ObservabilityOptions(9000, "127.0.0.1", "https://collector:4317", True, JSON, "debug")]


def test_metrics_are_where_the_server_is(run: Run, served: list[ObservabilityOptions]) -> None:
    assert run("serve", "--host", "127.0.0.1").code == 0
    assert served[0].metrics_host == "127.0.0.1"


def test_no_metrics(run: Run, served: list[ObservabilityOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_METRICS_PORT", "9000")  # a variable for many servers is no contradiction
    assert run("serve", "--no-metrics").code == 0
    assert served[0].metrics_port is None


@pytest.mark.parametrize("flag", [("--metrics-port", "9000"), ("--metrics-host", "127.0.0.1")])
def test_flags_without_effect_are_refused(run: Run, served: list[ObservabilityOptions], flag: tuple[str, str]) -> None:
    result = run("serve", "--no-metrics", *flag)
    assert result.code == 2
    assert f"{flag[0]} has no effect with --no-metrics" in result.error
    assert not served


def test_a_collector_without_a_scheme_is_asked_without_encryption(run: Run, served: list[ObservabilityOptions]) -> None:
    assert run("serve", "--otlp-endpoint", "collector:4317").code == 0
    assert served[0].otlp_endpoint == "http://collector:4317"


@pytest.mark.parametrize("url", ["ftp://collector:4317", "http://", "collector", "http://collector", "grpc://collector:4317"])
def test_a_collector_that_is_none_is_refused(run: Run, served: list[ObservabilityOptions], url: str) -> None:
    result = run("serve", "--otlp-endpoint", url)
    assert result.code == 2
    assert f"--otlp-endpoint: {url!r} is not http://host:port or https://host:port" in result.error
    assert not served
