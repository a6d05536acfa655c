"""Hugging Face checkpoints: their folders, weights, tokenizers and settings, read into the project's own modules."""
