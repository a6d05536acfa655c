"""The one-shot engine: dynamic batches for models that run once per input.

Imports `scheduling`, `bundle` and `runtime`; imported by `models`.
"""
