"""The services of `triptych.v1`: translation, text tasks, image classification and models.

Imported by `wiring` and `services.documents`.
"""
