"""Existing ONNX files: checks, trial runs, and adapters to the inputs and outputs that serving expects.

Imports `parity`; imported by `families` and `loading`.
"""
