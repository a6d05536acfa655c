"""Queues without threads, clocks or a runtime: admission, fairness, deadlines, batches.

Imports `bundle` and `runtime`; imported by both engines, `decoding` and `encoding`.
"""
