"""ONNX graphs: PyTorch modules around a checkpoint's own sub-modules, and their tracing.

Imports `errors` and torch; imported by `quantization` and `families`.
"""
