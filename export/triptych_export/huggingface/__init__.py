"""Hugging Face checkpoints: folders, weights, tokenizers and settings, read into the project's own modules.

Imports `errors`, `translation_source` and triptych_training's models; imported by `loading`.
"""
