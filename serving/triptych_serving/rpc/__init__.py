"""What every gRPC call passes through: dispatch, guards, limits, status and model leases. Knows no service.

Imports `repository` and what is below; imported by `services`, `observability` and the server.
"""
