"""Property tests: no time limit, for a busy machine is no fault; the same examples in every run. Rarer garbage collection."""

import gc

from hypothesis import settings

settings.register_profile("triptych", deadline=None, derandomize=True)
settings.load_profile("triptych")
gc.set_threshold(10_000, 20, 20)  # a tenth of an export was the collection of what imported libraries hold
