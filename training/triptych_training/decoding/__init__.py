"""Search in PyTorch: greedy, the reference for exported models, and batched beam search for large corpora.

May import `models` and `data`; evaluation, the tasks and the parity tests import it.
"""
