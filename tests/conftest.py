"""Property tests: no time limit, for a busy machine is no fault; the same examples in every run."""

from hypothesis import settings

settings.register_profile("triptych", deadline=None, derandomize=True)
settings.load_profile("triptych")
