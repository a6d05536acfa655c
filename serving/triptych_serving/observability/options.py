"""Options of metrics, traces and logs."""

from dataclasses import dataclass

TEXT, JSON = "text", "json"


@dataclass(frozen=True)
class ObservabilityOptions:
    """Metrics, traces and logs of a server. By default nothing is exposed; `triptych serve` sets the metrics port to 8002."""

    metrics_port: int | None = None  # of /metrics, /healthz and /readyz; 0: any free one; None: no port
    metrics_host: str = "0.0.0.0"
    otlp_endpoint: str = ""  # of an OpenTelemetry collector; empty: from the OTEL_* variables, without them no traces
    access_log: bool = False  # one line for each call
    log_format: str = TEXT  # or JSON
    log_level: str = "info"
    metrics_socket: int | None = None  # file descriptor of a Unix socket for them, in place of a port
