"""Decoding with slots and caches in GPU memory and captured CUDA graphs.

Imported by `decoding.lane_factory` and `models.translation` alone.
"""
