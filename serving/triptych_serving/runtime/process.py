"""The process: CPU share of its threads, open files, free heap memory, and what caught errors keep alive."""

import ctypes
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

NICENESS = 10  # beside a thread of the usual one, a tenth of its share (Linux: sched(7))
MOST = 19
PR_SET_PDEATHSIG = 1  # prctl(2)
FIRST_TO_END = "1000"  # proc_pid_oom_score_adj(5)


def give_way(niceness: int = NICENESS) -> None:
    """Lower the priority of the calling thread below that of the main thread, permanently, by so much niceness.

    The thread that reads requests and writes responses needs little CPU, but needs it at once: while it waits, an engine on the
    same CPUs runs small batches, which cost more CPU per request and delay it even longer. Batch work (SCHED_BATCH) that wakes
    does not interrupt what runs. Threads that the calling one creates from here on, including the runtime's, inherit all this.
    Threads have a niceness of their own on Linux only; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
        with suppress(OSError):
            level = min(MOST, os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness)
            if level > os.getpriority(os.PRIO_PROCESS, thread):
                os.setpriority(os.PRIO_PROCESS, thread, level)


def end_with_parent() -> None:
    """End this process with the thread that started it, whatever it is doing. On Linux only; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def depend_on_parent() -> None:
    """End this process with the thread that started it, and before others where memory is short. On Linux only, too."""
    end_with_parent()
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may hide it
            Path("/proc/self/oom_score_adj").write_text(FIRST_TO_END, encoding="ascii")


def allow_open_files() -> None:
    """Allow as many open files as the system does: each connection is one, and the usual limit of 1,024 is that of `select`."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 Unix only

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(OSError, ValueError):  # macOS has no hard limit, and takes no unlimited soft one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def trim_heap() -> None:
    """Return free heap memory to the system, if the C library can (glibc's `malloc_trim`)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def forget_frames(error: BaseException) -> None:
    """Clear the frames of an error and its causes, so that whoever keeps it does not keep sessions and lanes alive."""
    found = [error]
    for each in found:
        traceback.clear_frames(each.__traceback__)
        found += [other for other in (each.__cause__, each.__context__) if other is not None and other not in found]
