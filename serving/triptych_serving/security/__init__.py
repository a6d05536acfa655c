"""API keys, certificates, TLS, and access control.

Imports `rpc` and `errors`; imported by the server.
"""
