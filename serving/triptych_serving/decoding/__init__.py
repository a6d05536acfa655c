"""The autoregressive engine: rows join and leave a running batch between two decoding steps.

Imports `scheduling`, `bundle` and `runtime`; imported by `models`.
"""
