"""Memory that is free and still the process': the C library keeps it for the next who asks."""

import ctypes


def trim_heap() -> None:
    """Give it back to the system, where the C library can (glibc's `malloc_trim`)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
