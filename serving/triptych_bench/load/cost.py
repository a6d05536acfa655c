"""What the load generator itself takes."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """Clocks, read together."""

    wall: float
    process: float  # CPU seconds of all threads
    sending: float  # of the event loop's thread and of those that send

    @classmethod
    def now(cls, threads: float = 0.0) -> "Moment":
        """To be asked in the event loop's thread; `threads` are the CPU seconds of those that send beside it."""
        return cls(time.perf_counter(), time.process_time(), time.thread_time() + threads)


@dataclass(frozen=True)
class Cost:
    """Between two moments."""

    cores: float  # CPU seconds a second
    sending_share: float  # of one CPU, of the threads that send, which take turns: at 1 the generator can do no more

    @classmethod
    def between(cls, start: Moment, end: Moment) -> "Cost":
        """`end` is the later one."""
        wall = max(1e-9, end.wall - start.wall)
        return cls((end.process - start.process) / wall, (end.sending - start.sending) / wall)
