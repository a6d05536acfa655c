"""Precisions of a traced graph: int8 weights, float16 ranges, one weights file for all graphs.

Imports `graphs`; imported by `bundle_files` and `families`.
"""
