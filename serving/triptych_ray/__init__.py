"""Triptych as an application of Ray Serve: replicas of the same engine, on many machines, behind Ray's gRPC proxies."""
