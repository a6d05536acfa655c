"""One torch thread: models this small gain nothing from a second one, and on a busy machine they wait for it."""

import torch

torch.set_num_threads(1)
