"""Property tests: no time limit, for a busy machine is no fault; the same examples in every run.

One thread: a second one has nothing to do for models so small, and where the machine is busy all of them wait for it.
"""

import torch
from hypothesis import settings

settings.register_profile("triptych", deadline=None, derandomize=True)
settings.load_profile("triptych")
torch.set_num_threads(1)
