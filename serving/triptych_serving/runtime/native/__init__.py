"""Kernels in C++ that replace some of ONNX Runtime's own on CPUs, where a compiler was there when Triptych was installed."""
