"""gRPC services: wire messages to plain values and back. Nothing is decided here."""
