"""One thread: a second one has nothing to do for models so small, and where the machine is busy all of them wait for it."""

import torch

torch.set_num_threads(1)
