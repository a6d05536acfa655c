"""Models of the BERT family and their tasks.

Imported by `repository` and `services`.
"""
