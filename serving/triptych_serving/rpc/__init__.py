"""The path of every gRPC call: dispatch, call context, guards, limits, status and the hand-over to an engine.

Knows no service. Imports `models` and lower layers; imported by every package above.
"""
