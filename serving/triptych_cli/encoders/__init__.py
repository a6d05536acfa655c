"""The commands of encoder models and plain tensors: `fill`, `embed`, `classify`, `rerank`, `attend`, `infer` and others.

Imported by main alone.
"""
