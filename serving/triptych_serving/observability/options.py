"""What is shown of a server, and where."""

from dataclasses import dataclass

TEXT, JSON = "text", "json"


@dataclass(frozen=True)
class ObservabilityOptions:
    """By itself a server shows nothing; `triptych serve` has metrics and probes on port 8002."""

    metrics_port: int | None = None  # /metrics, /healthz, /readyz; 0: any free one; None: none of them
    metrics_host: str = "0.0.0.0"
    otlp_endpoint: str = ""  # of an OpenTelemetry collector; empty: as the OTEL_* variables say, without them no traces
    access_log: bool = False  # one line for each call
    log_format: str = TEXT  # or JSON
    log_level: str = "info"
