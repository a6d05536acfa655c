"""Metrics, with explicit denominators, and the sums over processes; BLEU of whole checkpoints.

May import `checkpoints` and `decoding`; the tasks and the command line import it.
"""
