"""Flags about metrics, probes, traces and logs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from triptych_cli.common import options

if TYPE_CHECKING:
    from triptych_serving.observability.options import ObservabilityOptions

Function = TypeVar("Function", bound=Callable[..., Any])
ENDPOINT = re.compile(r"https?://[^/\s]+:\d{1,5}/?")

flags = options.several(
    options.option("--metrics/--no-metrics", default=True, help="Serve /metrics, /healthz and /readyz over HTTP."),
    options.option(
        "--metrics-port", type=click.IntRange(0, 65_535), default=8002, help="Of metrics and probes; 0: any free one."
    ),
    options.option("--metrics-host", default="", help="Address of metrics and probes.  [default: --host]", show_default=False),
    options.option(
        "--otlp-endpoint",
        default="",
        metavar="URL",
        help="OTLP collector for traces, http(s)://host:port, asked by gRPC.  [default: OTEL_EXPORTER_OTLP_ENDPOINT]",
        show_default=False,
    ),
    options.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Log this and what is worse.",
    ),
    options.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How log lines look."),
    options.option("--access-log/--no-access-log", default=False, help="Log a line for each call."),
)


def read(values: dict[str, Any], host: str) -> ObservabilityOptions:
    """The options, taken out of a command's values.

    Args:
        values: by name.
        host: where the server listens.

    Raises:
        click.UsageError: a flag would have no effect, or the collector's address is none.
    """
    from triptych_serving.observability.options import ObservabilityOptions

    wanted, port, own_host = values.pop("metrics"), values.pop("metrics_port"), values.pop("metrics_host")
    if not wanted:
        _refuse_without_metrics()
    return ObservabilityOptions(
        metrics_port=port if wanted else None,
        metrics_host=own_host or host,
        otlp_endpoint=_endpoint(values.pop("otlp_endpoint")),
        log_level=values.pop("log_level"),
        log_format=values.pop("log_format"),
        access_log=values.pop("access_log"),
    )


def _refuse_without_metrics() -> None:
    context = click.get_current_context()
    for name in ("metrics_port", "metrics_host"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect with --no-metrics")


def _endpoint(url: str) -> str:
    """With a scheme: who leaves it out means no encryption."""
    if not url:
        return ""
    whole = url if "://" in url else f"http://{url}"
    if not ENDPOINT.fullmatch(whole):
        raise click.UsageError(f"--otlp-endpoint: {url!r} is not http://host:port or https://host:port")
    return whole
