"""The services of `triptych.v1`, one servicer per file.

Imported by `wiring`.
"""
