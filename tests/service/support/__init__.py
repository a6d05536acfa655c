"""Helpers of the service tests: servers, their telemetry, and inputs for them. Any test may import them."""
