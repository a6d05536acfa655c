"""Loaded models of every task: from validated input to plain results.

Imports the engines, `text`, `images` and `bundle`; imported by `repository`, `rpc`, `services` and `observability`.
"""
