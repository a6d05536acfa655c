"""Comparison of a bundle with its checkpoint in PyTorch: tokens, logits, labels, pixels.

Imports `bundle_files` and the serving engine; imported by `families`.
"""
