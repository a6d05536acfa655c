"""The response cache, and one computation for equal requests in flight.

Imported by `services`, `observability` and the server.
"""
