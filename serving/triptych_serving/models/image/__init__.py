"""Image classification models.

Imported by `repository` and `services`.
"""
