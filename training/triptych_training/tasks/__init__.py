"""One module per thing to train: its data, model, loss and metrics, and the function that starts the training.

May import every other package here; only the command line imports it.
"""
