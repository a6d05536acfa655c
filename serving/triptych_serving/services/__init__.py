"""gRPC services: wire messages to plain values and back.

Imports `rpc`, `models` and `repository`; imported by `wiring` and the server.
"""
