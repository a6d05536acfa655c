"""Queues, fairness, deadlines and batch selection, and the worker threads that both engines share; no graphs.

Imports `bundle` and `runtime`; imported by both engines, `decoding` and `encoding`.
"""
