"""The decode engine: autoregressive decoding of many rows, which join and leave a running batch between two steps.

Imports `scheduling`, `text`, `bundle` and `runtime`; imported by `models`.
"""
