"""The commands `train`, `distill`, `checkpoint`, `export` and `evaluate`.

Imported by main alone.
"""
