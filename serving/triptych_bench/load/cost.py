"""What the load generator itself takes."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """Clocks, read together."""

    wall: float
    process: float  # CPU seconds of all threads
    loop: float  # of the event loop's thread

    @classmethod
    def now(cls) -> "Moment":
        """To be asked in the event loop's thread."""
        return cls(time.perf_counter(), time.process_time(), time.thread_time())


@dataclass(frozen=True)
class Cost:
    """Between two moments."""

    cores: float  # CPU seconds a second
    loop_share: float  # of one CPU, of the event loop: at 1 the generator can do no more

    @classmethod
    def between(cls, start: Moment, end: Moment) -> "Cost":
        """`end` is the later one."""
        wall = max(1e-9, end.wall - start.wall)
        return cls((end.process - start.process) / wall, (end.loop - start.loop) / wall)
