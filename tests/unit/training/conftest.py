"""Property tests without a time limit (the machine may be busy) and with the same examples in every run.

One torch thread: models this small gain nothing from a second one, and on a busy machine they wait for it.
"""

import torch
from hypothesis import settings

settings.register_profile("triptych", deadline=None, derandomize=True)
settings.load_profile("triptych")
torch.set_num_threads(1)
