"""The services of `triptych.v1`: translation, text and image tasks, generation, attention and models.

Imported by `wiring` and `services.documents`.
"""
