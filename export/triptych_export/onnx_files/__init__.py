"""Existing ONNX files: checks, trial runs, and adapters to the inputs and outputs that serving expects.

`decoder` is imported by `graphs`, the others by `families`, `loading` and `original`.
"""
