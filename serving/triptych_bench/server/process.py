"""A server's process on this machine."""

import time

import psutil

from triptych_bench.server.watch import Look
from triptych_bench.target import TargetError


class ProcessMeter:
    """CPU and memory of a process and of those that it has started.

    Args:
        pid: of the process.

    Raises:
        TargetError: there is no such process, or it may not be looked at.
    """

    seconds = 0.25

    def __init__(self, pid: int) -> None:
        self.source = f"process {pid}"
        try:
            process = psutil.Process(pid)
            self._processes = [process, *process.children(recursive=True)]
            _look(self._processes[0])
        except psutil.Error as error:
            raise TargetError(f"process {pid} cannot be watched: {error}") from error

    async def look(self) -> Look | None:
        """Processes that have ended count no more."""
        seen = []
        for process in self._processes:
            try:
                seen.append(_look(process))
            except psutil.Error:
                continue
        if not seen:
            return None
        return Look(time.perf_counter(), sum(cpu for cpu, _ in seen), sum(memory for _, memory in seen))


def _look(process: "psutil.Process") -> tuple[float, int]:
    with process.oneshot():
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss
