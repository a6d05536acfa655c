"""The server: bundles in, answers out. No torch here, and ONNX Runtime in session.py alone."""
