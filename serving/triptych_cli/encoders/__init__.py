"""The commands of encoder models: `fill`, `embed`, `classify-text`, `classify-tokens`, `answer` and `classify`.

Imported by main alone.
"""
