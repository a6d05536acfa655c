"""How much of a CPU threads get where others of the process want it too."""

import ctypes
import os
import sys
import threading
import traceback
from contextlib import suppress

NICENESS = 5  # beside a thread of the usual one, a third of its share (Linux: sched(7))
MOST = 19


def give_way() -> None:
    """The calling thread computes with what the main thread leaves it. For good: there is no way back.

    Whoever reads requests and writes answers hardly needs a CPU, but needs it at once: while it waits for one, an engine on the
    same CPUs runs small batches, which cost more CPU a request and make it wait even longer. Threads that the calling one makes
    from here on, the runtime's too, give way as well. On Linux alone threads have a niceness of their own; elsewhere nothing
    happens.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it
            level = min(MOST, os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICENESS)
            if level > os.getpriority(os.PRIO_PROCESS, thread):
                os.setpriority(os.PRIO_PROCESS, thread, level)


def trim_heap() -> None:
    """Give it back to the system, where the C library can (glibc's `malloc_trim`)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def forget_frames(error: BaseException) -> None:
    """Whoever keeps the error, or what it came of, shall not keep what the functions in its traceback had: sessions, lanes."""
    found = [error]
    for each in found:
        traceback.clear_frames(each.__traceback__)
        found += [other for other in (each.__cause__, each.__context__) if other is not None and other not in found]
