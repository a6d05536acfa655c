"""Checkpoints in, bundles out: graphs, quantization, parity with PyTorch, manifest and model card."""
