"""Families of models that can be exported: translation, text encoders, image classifiers.

Imports `graphs`, `quantization` and `parity`; imported by `loading` and `exporter`.
"""
