"""Model repositories: versions, policies, loading, placement on devices, and the registry of loaded models.

Imports `models` and lower layers; imported by `services`, `observability` and the server.
"""
