"""Decoding with slots and caches in a GPU's memory and captured CUDA graphs.

Imported by `decoding.lanes` and `models.translation` alone.
"""
