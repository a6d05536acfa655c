"""Text to token ids and back: tokenizers, validation of texts, spans of tokens, and language pairs.

Imports `bundle` and `runtime`; imported by `decoding`, `models` and the packages above.
"""
