"""Triptych on Ray: replicas of the engine behind the gRPC proxies of Ray Serve, and `tables`, jobs of Ray Data.

Imported by Ray's configuration and by triptych_cli for `--engine ray`; imports triptych_embedded and triptych_serving.
"""
