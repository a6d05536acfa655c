"""BLEU of translations and of whole checkpoints.

May import `checkpoints` and `decoding`; only the command line imports it.
"""
