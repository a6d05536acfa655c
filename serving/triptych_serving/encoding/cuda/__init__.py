"""Encoder graphs bound to GPU memory, with batches padded to buckets and captured CUDA graphs.

Imported by `encoding` and `models`.
"""
