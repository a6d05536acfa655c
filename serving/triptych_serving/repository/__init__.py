"""Model repositories: versions, policies, loading, placement on devices, and the registry of loaded models.

Imports `models`; imported by `rpc`, `services`, `observability` and the server.
"""
