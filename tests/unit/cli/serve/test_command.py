"""`triptych serve`: the options that its flags become, and flags without effect."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from triptych_cli.serve import flags
from triptych_serving.observability import logs
from triptych_serving.observability.options import JSON, TEXT, ObservabilityOptions
from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
from triptych_serving.repository.warmup import WarmUp
from triptych_serving.response_cache.response_cache import ResponseCacheOptions
from triptych_serving.security.options import SecurityOptions
from triptych_serving.server import ServerOptions

from ....fixtures.certificates import Authority
from ....fixtures.toy import MODELS
from ..conftest import Run


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> list[ObservabilityOptions]:
    """Options that the logs were configured with."""
    configured: list[ObservabilityOptions] = []
    monkeypatch.setattr(logs, "configure_logs", lambda options, _: configured.append(options))
    return configured


def test_defaults(run: Run, served: list[ServerOptions], configured: list[ObservabilityOptions]) -> None:
    assert run("serve").code == 0
    [settings] = served
    repository = settings.repository
    assert repository.root.name == "repository"
    assert (repository.model, repository.control, repository.load_models) == ("", ModelControl.NONE, ())
    assert (repository.poll_seconds, repository.warm_up) == (15.0, WarmUp.ALL)
    assert (settings.encoders.threads, settings.encoders.runs) == (None, None)
    assert settings.repeats == ResponseCacheOptions(0, False)
    expected = ObservabilityOptions(8002, "0.0.0.0", "", access_log=False, log_format=TEXT, log_level="info")
    assert settings.observability == expected
    assert configured == [expected]


def test_engines_limits_and_lifecycle(run: Run, served: list[ServerOptions]) -> None:
    engines = ("--encoder-threads", "3", "--encoder-runs", "5", "--workers", "7")
    limits = ("--max-queue-rows", "7", "--max-requests-per-client", "3")
    lifecycle = ("--drain-delay-secs", "2", "--exit-timeout-secs", "9")
    assert run("serve", *engines, *limits, *lifecycle).code == 0
    [settings] = served
    assert (settings.encoders.threads, settings.encoders.runs) == (3, 5)
    assert settings.decoders.engine.workers == 7
    assert (settings.limits.queue_rows, settings.limits.requests_per_client) == (7, 3)
    assert settings.loader.decoders.engine.limits.waiting_rows == settings.loader.encoders.limits.waiting_rows == 7
    assert (settings.lifecycle.drain_delay_seconds, settings.lifecycle.exit_timeout_seconds) == (2.0, 9.0)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--model", "toy", "--warm-up", "none"], RepositoryOptions(MODELS, "toy", warm_up=WarmUp.NONE)),
        (["--model-control", "poll", "--poll-interval-secs", "2"], RepositoryOptions(MODELS, "", ModelControl.POLL, 2.0)),
        (
            ["--model-control", "explicit", "--load-model", "a", "--load-model", "b"],
            RepositoryOptions(MODELS, "", ModelControl.EXPLICIT, load_models=("a", "b")),
        ),
    ],
)
def test_repository(run: Run, served: list[ServerOptions], arguments: list[str], options: RepositoryOptions) -> None:
    assert run("serve", "--models", MODELS, *arguments).code == 0
    assert [settings.repository for settings in served] == [options]


def test_variables(run: Run, served: list[ServerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"LOAD_MODEL": "a b", "MODEL_CONTROL": "explicit", "RESPONSE_CACHE_BYTES": "5000", "DEDUPLICATE": "true"}
    for name, value in variables.items():
        monkeypatch.setenv(f"TRIPTYCH_{name}", value)
    assert run("serve").code == 0
    assert served[0].repository.load_models == ("a", "b")
    assert served[0].repeats == ResponseCacheOptions(5_000, True)


def test_observability(run: Run, served: list[ServerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ("--metrics-port", "9000", "--metrics-host", "127.0.0.1", "--otlp-endpoint", "https://collector:4317")
    assert run("serve", *metrics, "--access-log", "--log-format", "json", "--log-level", "debug").code == 0
    assert run("serve", "--host", "127.0.0.1", "--otlp-endpoint", "collector:4317").code == 0
    monkeypatch.setenv("TRIPTYCH_METRICS_PORT", "9000")  # a variable for many servers is not a contradiction
    assert run("serve", "--no-metrics").code == 0
    everything, local, none = (settings.observability for settings in served)
    assert everything == ObservabilityOptions(9000, "127.0.0.1", "https://collector:4317", True, JSON, "debug")
    assert (local.metrics_host, local.otlp_endpoint) == ("127.0.0.1", "http://collector:4317")
    assert none.metrics_port is None


def test_levels_and_formats_of_logs_may_be_in_capitals(
    run: Run, served: list[ServerOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIPTYCH_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("TRIPTYCH_LOG_FORMAT", "JSON")
    assert run("serve").code == 0
    assert (served[0].observability.log_level, served[0].observability.log_format) == ("warning", JSON)


@pytest.mark.parametrize(
    "url",
    [
        *("http://[::1", "http://a:b:1", "http://", "http://collector"),
        *("collector", "collector:65536", "ftp://collector:4317", "grpc://c:4317"),
    ],
)
def test_a_malformed_collector_address_is_an_error(run: Run, served: list[ServerOptions], url: str) -> None:
    result = run("serve", "--otlp-endpoint", url)
    assert result.code == 2
    assert f"--otlp-endpoint: {url!r} is not http://host:port or https://host:port" in result.error
    assert not served


def test_origins_are_those_that_browsers_send(run: Run, served: list[ServerOptions]) -> None:
    given = "https://Pages.example", "http://localhost:8080", "chrome-extension://aaaa", "app://obsidian.md", "*"
    assert run("serve", "--http-port", "0", *(part for origin in given for part in ("--http-origin", origin))).code == 0
    assert served[0].gateway is not None
    assert served[0].gateway.origins == tuple(map(str.lower, given))
    for origin in ("pages.example", "https://*.example", "https://pages.example/", "https://pages.example:443", "http://a:80"):
        result = run("serve", "--http-port", "0", "--http-origin", origin)
        assert (result.code, f"--http-origin: {origin!r} is not scheme://host, " in result.error) == (2, True)


def test_security(run: Run, served: list[ServerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_TLS_CLIENT_CA", "ca.pem")
    files = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--api-keys", "keys")
    assert run("serve", *files, "--admin-client", "ops", "--admin-client", "spiffe://example/ops").code == 0
    assert run("serve").code == 2  # the variable alone has no effect
    monkeypatch.delenv("TRIPTYCH_TLS_CLIENT_CA")
    monkeypatch.setenv("TRIPTYCH_ADMIN_CLIENT", "one two")
    assert run("serve", *files, "--tls-client-ca", "ca.pem").code == 0
    monkeypatch.delenv("TRIPTYCH_ADMIN_CLIENT")
    assert run("serve", "--allow-admin").code == 0
    assert run("serve", "--api-keys", "keys", "--allow-plaintext-keys").code == 0
    paths = Path("cert.pem"), Path("key.pem"), Path("ca.pem"), Path("keys")
    assert [settings.security for settings in served] == [
        SecurityOptions(*paths, admin_clients=("ops", "spiffe://example/ops")),
        SecurityOptions(*paths, admin_clients=("one", "two")),
        SecurityOptions(allow_admin=True),
        SecurityOptions(api_keys=Path("keys"), allow_plaintext_keys=True),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--poll-interval-secs", "2"], "--poll-interval-secs has no effect without --model-control poll"),
        (["--load-model", "a"], "--load-model has no effect without --model-control explicit"),
        (["--model-control", "explicit", "--model", "a"], "--model is not for --model-control explicit"),
        (["--model-control", "poll", "--poll-interval-secs", "0"], "0.0 is not in the range"),
        (["--max-queue-secs", "nan"], "nan is not in the range"),
        (["--max-queue-secs", "5s"], "'5s' is not a number in the range 0<=x<=2000000 (see"),
        (["--port", "tcp://10.0.0.1:8001"], "'tcp://10.0.0.1:8001' is not a whole number in the range 0<=x<=65535 (see"),
        (["--exit-timeout-secs", "inf"], "inf is not in the range 0<=x<=2000000"),
        (["--grpc-max-connection-age-secs", "1e12"], "1000000000000.0 is not in the range"),
        (["--model-control", "often"], "'often' is not one of 'none', 'poll', 'explicit'"),
        (["--encoder-threads", "0"], "--encoder-threads"),
        (["--encoder-runs", "0"], "--encoder-runs"),
        (["--encoder-threads", "1025"], "1025 is not in the range 1<=x<=1024"),
        (["--encoder-runs", "1025"], "1025 is not in the range 1<=x<=1024"),
        (["--workers", "1025"], "1025 is not in the range 1<=x<=1024"),
        (["--max-message-bytes", str(2**31)], "2147483648 is not in the range 1024<=x<=2147483647"),
        (["--max-text-message-bytes", str(2**31)], "2147483648 is not in the range 1024<=x<=2147483647"),
        (["--response-cache-bytes", "-1"], "--response-cache-bytes"),
        (["--drain-delay-secs", "5", "--exit-timeout-secs", "5"], "--drain-delay-secs 5 must be below --exit-timeout-secs 5"),
        (["--no-metrics", "--metrics-port", "9000"], "--metrics-port has no effect with --no-metrics"),
        (["--no-metrics", "--metrics-host", "127.0.0.1"], "--metrics-host has no effect with --no-metrics"),
        (["--tls-key", "k"], "--tls-key has no effect without --tls-cert"),
        (["--tls-cert", "c"], "--tls-cert needs --tls-key"),
        (["--tls-client-ca", "c"], "--tls-client-ca has no effect without --tls-cert and --tls-key"),
        (["--admin-client", "c"], "--admin-client has no effect without --tls-client-ca"),
        (["--allow-plaintext-keys"], "--allow-plaintext-keys has no effect without --api-keys"),
        (["--api-keys", "k", "--allow-admin"], "--allow-admin would give every API key the role admin"),
    ],
)
def test_flags_without_effect_are_errors(run: Run, served: list[ServerOptions], arguments: list[str], problem: str) -> None:
    result = run("serve", *arguments)
    assert result.code == 2
    assert problem in result.error
    assert not served


def test_a_server_with_unusable_security_does_not_start(run: Run, tmp_path: Path) -> None:
    authority, keys, faulty = Authority(tmp_path), tmp_path / "keys", tmp_path / "faulty"
    keys.write_text("# none yet\n")
    faulty.write_text("app infer\nops\n")
    first, second = authority.sign("first"), authority.sign("second")
    host = ("--host", "127.0.0.1")
    for arguments, fault in (
        ((*host, "--api-keys", keys), f"{keys}: no API keys, so every call would be rejected"),
        ((*host, "--api-keys", faulty), f"{faulty}: line 1: 2 columns"),
        ((*host, "--api-keys", tmp_path / "none"), f"{tmp_path / 'none'}: No such file or directory"),
        (("--api-keys", keys), "--api-keys on 0.0.0.0 without TLS would send keys unencrypted"),
        (("--tls-cert", first.certificate, "--tls-key", second.key), f"{second.key}: does not belong to the certificate"),
        (("--tls-cert", first.certificate, "--tls-key", tmp_path / "none"), f"{tmp_path / 'none'}: No such file or directory"),
        (("--allow-admin",), "--allow-admin has no effect without --model-control explicit"),
    ):
        result = run("serve", "--models", MODELS, "--port", "0", *arguments)
        assert result.code == 1
        [line] = [line for line in result.err.splitlines() if line.startswith("Error: ")]
        assert line.startswith(f"Error: {fault}")


def test_the_playground_names_its_own_flag(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = run("playground", "--models", MODELS, "--no-browser", "--port", str(port)).err.splitlines()[-1]
    assert "--port" in error
    assert "--http-port" not in error


def test_a_signal_before_the_server_listens_to_it_ends_the_process_with_code_0(run: Run, served: list[ServerOptions]) -> None:
    program = f"""
import os, signal
from triptych_cli.serve import command
command.needs = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
command.command(["--models", {str(MODELS)!r}])
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    before = signal.getsignal(signal.SIGTERM)
    assert run("serve").code == 0
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(served) == 1


def test_the_security_guide_lists_every_flag() -> None:
    guide = (Path(__file__).parents[4] / "serving" / "docs" / "security.md").read_text(encoding="utf-8")

    @flags.security
    @click.command()
    def command() -> None:
        """Do nothing."""

    assert command.params
    for flag in command.params:
        assert f"| `{flag.opts[0]}" in guide
        assert f"`{flag.envvar}`" in guide
