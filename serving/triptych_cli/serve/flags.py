"""Flags of `triptych serve`, a group for each part of the server, and functions that make the part's options of them.

The functions remove the flags of their group from the values of the command.
"""

from __future__ import annotations

import math
import re
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from triptych_cli.common import options
from triptych_cli.common.options import FloatRange, is_given, option, optional, several
from triptych_embedded.request import embedded_repository

if TYPE_CHECKING:
    from triptych_serving.gateway.options import GatewayOptions
    from triptych_serving.lifecycle import LifecycleOptions
    from triptych_serving.observability.options import ObservabilityOptions
    from triptych_serving.repository.model_manager import RepositoryOptions
    from triptych_serving.response_cache.response_cache import ResponseCacheOptions
    from triptych_serving.rpc.limits import LimitOptions
    from triptych_serving.security.options import SecurityOptions

COUNT = click.IntRange(min=1)
THREADS = click.IntRange(1, 1024)
MESSAGE_BYTES = click.IntRange(1024, 2**31 - 1)  # protobuf has no larger messages
PORT = click.IntRange(0, 65_535)
LONGEST_SECONDS = 2_000_000  # gRPC has milliseconds in 32 bits
SECONDS = FloatRange(0, LONGEST_SECONDS)
FILE = click.Path(path_type=Path)
# In capitals, too, as variables of other software have them.
LOG_LEVEL = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)
LOG_FORMAT = click.Choice(["text", "json"], case_sensitive=False)
POLL_SECONDS = 15.0
HELP_ALL = "triptych.help-all"
# Sections of the help: options that `--help` shows, and those that only `--help-all` adds.
SECTIONS = {
    "Network": (
        "host port http_port",
        "http_host http_origin playground glossaries reflection max_message_bytes "
        "grpc_max_connection_age_secs grpc_max_connection_age_grace_secs",
    ),
    "Models": ("models model model_control warm_up", "poll_interval_secs load_model"),
    "Devices": (
        "device precision processes workers slots max_context",
        "prefix_cache_bytes gpu_memory_limit encoder_threads encoder_runs",
    ),
    "Limits": (
        "max_queue_secs max_requests_per_client response_cache_bytes exit_timeout_secs",
        "max_queue_requests max_queue_rows max_queue_tokens refuse_late max_documents max_document_bytes "
        "max_text_message_bytes max_request_characters max_decode_tokens max_document_secs max_health_watchers "
        "deduplicate drain_delay_secs",
    ),
    "Security": ("tls_cert tls_key tls_client_ca api_keys allow_admin", "allow_plaintext_keys admin_client"),
    "Observability": ("metrics metrics_port log_level log_format access_log", "metrics_host otlp_endpoint"),
}
# Browsers leave out the default port. Extensions and applications have schemes of their own, such as chrome-extension or app.
ORIGIN = re.compile(r"\*|http://[^/\s*]+(?<!:80)|https://[^/\s*]+(?<!:443)|(?!https?:)[a-z][a-z0-9+.-]*://[^/\s*]+")
ENDPOINT = re.compile(r"https?://[^/\s]+:\d{1,5}/?")

models = several(
    options.models,
    optional("--model", default="", help="Serve only this model.  [default: all]"),
    option(
        "--model-control",
        type=click.Choice(["none", "poll", "explicit"]),
        default="none",
        help="When models are loaded: only at the start, when the repository changes, or on LoadModel and UnloadModel.",
    ),
    optional(
        "--poll-interval-secs",
        type=FloatRange(0.1, LONGEST_SECONDS),
        help=f"Time between two scans of the repository, with --model-control poll.  [default: {POLL_SECONDS:g}]",
    ),
    option(
        "--warm-up",
        type=click.Choice(["none", "usual", "all"]),
        default="all",
        help="What to run before a model serves: nothing, what requests without options need, or every graph.",
    ),
    optional(
        "--load-model",
        multiple=True,
        help="Load this model at the start, with --model-control explicit; repeatable, '*' is all.",
    ),
)
limits = several(
    option("--max-queue-requests", type=COUNT, default=4_096, help="Requests in the queue of a model."),
    option("--max-queue-rows", type=COUNT, default=16_384, help="Rows in the queue of a model, one per sentence."),
    option("--max-queue-tokens", type=COUNT, default=1_048_576, help="Tokens in the queue of a model."),
    option("--max-queue-secs", type=SECONDS, default=0.0, help="Reject requests whose expected wait is longer; 0: no limit."),
    option(
        "--refuse-late/--no-refuse-late", default=True, help="Reject a request at once if it is expected to miss its deadline."
    ),
    option(
        "--max-requests-per-client",
        type=click.IntRange(min=0),
        default=0,
        help="Concurrent calls per API key, certificate or else address; a stream is one; 0: no limit.",
    ),
    option("--max-message-bytes", type=MESSAGE_BYTES, default=64 << 20, help="Largest request or response."),
    option(
        "--max-text-message-bytes",
        type=MESSAGE_BYTES,
        default=8 << 20,
        help="Largest request that carries texts, and neither images nor a document.",
    ),
    option("--max-request-characters", type=COUNT, default=4 << 20, help="Characters of all texts of a request."),
    option(
        "--max-decode-tokens",
        type=COUNT,
        default=4 << 20,
        help="Tokens that a request may decode: sentences x beams (or samples) x max_length.",
    ),
    option("--max-documents", type=COUNT, default=8, help="Documents that are translated concurrently."),
    option("--max-document-bytes", type=COUNT, default=64 << 20, help="Largest document to translate."),
    option(
        "--max-document-secs", type=FloatRange(1, LONGEST_SECONDS), default=3_600.0, help="Longest time for a document, in all."
    ),
    option("--max-health-watchers", type=COUNT, default=1_000, help="Open streams of health checks and reflection."),
)
lifecycle = several(
    option(
        "--drain-delay-secs",
        type=SECONDS,
        default=0.0,
        help="On shutdown, report not ready to health checks for this long before requests are rejected.",
    ),
    option(
        "--exit-timeout-secs",
        type=SECONDS,
        default=30.0,
        help="Time from the signal to the exit, including the delay; requests still in flight are then cancelled.",
    ),
    option(
        "--grpc-max-connection-age-secs",
        type=SECONDS,
        default=600.0,
        help="Close older connections once their calls are done, so that clients find new replicas; 0: never.",
    ),
    option(
        "--grpc-max-connection-age-grace-secs",
        type=SECONDS,
        default=0.0,
        help="Cancel calls that take longer than this beyond the connection's age; 0: none.",
    ),
)
response_cache = several(
    option(
        "--response-cache-bytes",
        type=click.IntRange(min=0),
        default=0,
        help="Memory for responses, which are reused for equal requests; 0: no cache.",
    ),
    option("--deduplicate/--no-deduplicate", default=False, help="Compute equal requests that are in flight together once."),
)
security = several(
    option("--tls-cert", type=FILE, default=None, help="Certificate chain, PEM; turns TLS on."),
    option("--tls-key", type=FILE, default=None, help="Key of the certificate, PEM."),
    option("--tls-client-ca", type=FILE, default=None, help="Accept only clients with a certificate of these CAs."),
    option("--api-keys", type=FILE, default=None, help="Accept only callers with a key of this file."),
    option("--allow-plaintext-keys", is_flag=True, help="Accept API keys without TLS, if a proxy in front terminates it."),
    option("--allow-admin", is_flag=True, help="Let every caller load and unload models."),
    option(
        "--admin-client",
        multiple=True,
        metavar="NAME",
        help="Let the client with this name in its certificate load and unload models; repeatable.",
    ),
)
observability = several(
    option("--metrics/--no-metrics", default=True, help="Serve /metrics, /healthz and /readyz over HTTP."),
    option("--metrics-port", type=PORT, default=8002, help="Port of metrics and probes; 0: any free one."),
    optional("--metrics-host", default="", help="Address of metrics and probes.  [default: --host]"),
    optional(
        "--otlp-endpoint",
        default="",
        metavar="URL",
        help="OTLP collector for traces, http(s)://host:port, over gRPC.  [default: OTEL_EXPORTER_OTLP_ENDPOINT]",
    ),
    option("--log-level", type=LOG_LEVEL, default="info", help="Lowest level to log."),
    option("--log-format", type=LOG_FORMAT, default="text", help="Format of log lines."),
    option("--access-log/--no-access-log", default=False, help="Log a line for each call."),
)


gateway = several(
    optional("--http-port", type=PORT, help="Port of the HTTP/JSON gateway; 0: any free one.  [default: no gateway]"),
    optional("--http-host", default="", help="Address of the gateway.  [default: --host]"),
    option(
        "--http-origin",
        multiple=True,
        metavar="ORIGIN",
        help="Let pages of this origin (https://example.com, or *) call the gateway; repeatable.",
    ),
    optional(
        "--glossaries",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="FOLDER",
        help="Glossaries of DeepL's API: files ID.SOURCE.TARGET.tsv, which its clients may add and delete.",
    ),
    option("--playground/--no-playground", default=False, help="Serve a page for trying the models at / of the gateway."),
)


class GroupedHelp(click.Command):
    """A command whose help has sections; `--help` leaves out rarer options, and the environment variables."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = ctx.meta.get(HELP_ALL, False)
        left = {parameter.name: copy(parameter) for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)}
        for parameter in left.values():
            parameter.show_envvar = everything
        for title, (common, others) in SECTIONS.items():
            section = [left.pop(name).get_help_record(ctx) for name in f"{common} {others}".split()]
            with formatter.section(title):
                formatter.write_dl(list(filter(None, section[: None if everything else len(common.split())])))
        with formatter.section("Help"):
            formatter.write_dl(list(filter(None, (parameter.get_help_record(ctx) for parameter in left.values()))))


def _show_all(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.meta[HELP_ALL] = True
        click.echo(context.get_help())
        context.exit()


help_all = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options, with their environment variables, and exit.",
)


def take_models(values: dict[str, Any]) -> RepositoryOptions:
    """Return the options of the repository. Raises click.UsageError: a flag has no effect beside another."""
    from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
    from triptych_serving.repository.warmup import WarmUp

    control = ModelControl(values.pop("model_control"))
    root, model = values.pop("models") or embedded_repository(), values.pop("model")
    warm_up = WarmUp(values.pop("warm_up"))
    seconds, load = values.pop("poll_interval_secs"), tuple(values.pop("load_model"))
    if seconds is not None and control is not ModelControl.POLL:
        raise click.UsageError("--poll-interval-secs has no effect without --model-control poll")
    if load and control is not ModelControl.EXPLICIT:
        raise click.UsageError("--load-model has no effect without --model-control explicit")
    if model and control is ModelControl.EXPLICIT:
        raise click.UsageError("--model is not for --model-control explicit; name models with --load-model")
    return RepositoryOptions(root, model, control, POLL_SECONDS if seconds is None else seconds, warm_up, load)


def take_limits(values: dict[str, Any]) -> LimitOptions:
    """Return the limits of requests."""
    from triptych_serving.rpc.limits import LimitOptions

    named = {name.removeprefix("max_").replace("_secs", "_seconds"): name for name in values}
    found = {field: values.pop(named[field]) for field in LimitOptions.__dataclass_fields__}
    return LimitOptions(**{**found, "queue_seconds": found["queue_seconds"] or math.inf})


def take_lifecycle(values: dict[str, Any]) -> LifecycleOptions:
    """Return the options of shutdown and connections. Raises click.UsageError: they contradict each other."""
    from triptych_serving.lifecycle import LifecycleOptions

    delay, timeout = values.pop("drain_delay_secs"), values.pop("exit_timeout_secs")
    if delay and delay >= timeout:
        raise click.UsageError(f"--drain-delay-secs {delay:g} must be below --exit-timeout-secs {timeout:g}")
    return LifecycleOptions(
        delay, timeout, values.pop("grpc_max_connection_age_secs"), values.pop("grpc_max_connection_age_grace_secs")
    )


def take_response_cache(values: dict[str, Any]) -> ResponseCacheOptions:
    """Return the options of the response cache."""
    from triptych_serving.response_cache.response_cache import ResponseCacheOptions

    return ResponseCacheOptions(values.pop("response_cache_bytes"), values.pop("deduplicate"))


def take_security(values: dict[str, Any]) -> SecurityOptions:
    """Return the options of TLS, API keys and admin calls.

    Raises:
        click.UsageError: one has no effect, or contradicts another.
    """
    from triptych_serving.errors import SecurityError
    from triptych_serving.security.options import SecurityOptions

    try:
        return SecurityOptions(
            tls_certificate=values.pop("tls_cert"),
            tls_key=values.pop("tls_key"),
            tls_client_ca=values.pop("tls_client_ca"),
            api_keys=values.pop("api_keys"),
            allow_plaintext_keys=values.pop("allow_plaintext_keys"),
            allow_admin=values.pop("allow_admin"),
            admin_clients=values.pop("admin_client"),
        )
    except SecurityError as error:
        raise click.UsageError(str(error)) from error


def take_gateway(values: dict[str, Any], host: str) -> GatewayOptions | None:
    """Return the options of the HTTP gateway, None without one; `host` is the default of its address.

    Raises:
        click.UsageError: a flag has no effect, or an origin is malformed.
    """
    from triptych_serving.gateway.options import GatewayOptions

    port, own_host = values.pop("http_port"), values.pop("http_host")
    origins = tuple(map(str.lower, values.pop("http_origin")))  # as browsers send them
    playground, glossaries = values.pop("playground"), values.pop("glossaries")
    given = {"--http-host": own_host, "--http-origin": origins, "--playground": playground, "--glossaries": glossaries}
    if port is None and (idle := [flag for flag, value in given.items() if value]):
        raise click.UsageError(f"{idle[0]} has no effect without --http-port")
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            forms = "scheme://host, scheme://host:port (not the default port) or *"
            raise click.UsageError(f"--http-origin: {origin!r} is not {forms}")
    return None if port is None else GatewayOptions(own_host or host, port, origins, playground, glossaries=glossaries)


def take_observability(values: dict[str, Any], host: str) -> ObservabilityOptions:
    """Return the options of metrics, traces and logs; `host` is the default of the address of metrics.

    Raises:
        click.UsageError: a flag has no effect, or the address of the collector is malformed.
    """
    from triptych_serving.observability.options import ObservabilityOptions

    metrics, port, own_host = values.pop("metrics"), values.pop("metrics_port"), values.pop("metrics_host")
    for name in () if metrics else ("metrics_port", "metrics_host"):
        if is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect with --no-metrics")
    return ObservabilityOptions(
        metrics_port=port if metrics else None,
        metrics_host=own_host or host,
        otlp_endpoint=_endpoint(values.pop("otlp_endpoint")),
        log_level=values.pop("log_level"),
        log_format=values.pop("log_format"),
        access_log=values.pop("access_log"),
    )


def _endpoint(url: str) -> str:
    """Add the scheme; without one the connection is not encrypted."""
    if not url:
        return ""
    whole = url if "://" in url else f"http://{url}"
    try:
        usable = ENDPOINT.fullmatch(whole) and urlsplit(whole).port
    except ValueError:  # such as half of an IPv6 address
        usable = False
    if not usable:
        raise click.UsageError(f"--otlp-endpoint: {url!r} is not http://host:port or https://host:port")
    return whole
