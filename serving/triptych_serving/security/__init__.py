"""Authentication and encryption: API keys, certificates, TLS, and the guard that checks every call.

Imports `rpc` and `errors`; imported by `gateway`, the server and the command line.
"""
