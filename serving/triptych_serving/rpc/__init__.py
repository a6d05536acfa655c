"""The path of every gRPC call: dispatch, call context, guards, limits, status and the hand-over to an engine.

Knows no service. Imports `repository` and lower layers; imported by `services`, `security`, `observability` and the server.
"""
