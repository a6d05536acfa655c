"""The training loop: options, optimizers, time limits, the run folder and resuming; the same for every task.

May import `checkpoints`, `data` and `models`; the tasks and the command line import it.
"""
