"""Reading, tokenizing, batching and augmenting training data; knows no model.

May import `errors` only; checkpoints, decoding, the loop and the tasks import it.
"""
