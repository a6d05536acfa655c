"""Tokenizers of Hugging Face checkpoints, converted to one `tokenizer.json`.

Imported by `huggingface.architectures` and `huggingface.checkpoint`.
"""
