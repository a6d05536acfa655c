"""What operators see of a server: metrics and probes over HTTP, traces over OTLP, logs."""
