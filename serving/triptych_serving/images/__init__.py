"""Image files to pixels: opening, limits, colour, resizing.

Imports `bundle` and `runtime`; imported by `models`.
"""
