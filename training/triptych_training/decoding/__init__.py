"""Greedy and beam search in PyTorch: the reference for exported models, and batched search for large corpora.

May import `models` and `data`; evaluation, the tasks and the parity tests import it.
"""
