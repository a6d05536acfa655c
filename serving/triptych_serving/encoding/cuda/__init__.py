"""Encoder graphs bound to a GPU's memory, with batches padded to buckets and captured CUDA graphs.

Imported by `encoding` and `models`.
"""
