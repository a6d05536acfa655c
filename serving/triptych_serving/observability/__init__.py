"""Metrics and probes over HTTP, traces over OTLP, and logs.

Imports `rpc`, `repository` and lower layers; imported by the server and the command line.
"""
