"""Sessions whose runs have more threads while no other run is in progress."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from triptych_serving.runtime.session import ATTENTION, Array, RunStop, Session

# Runs after one that had others beside it: they have few threads too, as others will probably come beside them again. Else the
# runs of two or three clients take turns at having more threads than there are CPUs.
SHARED_RUNS = 8


class LoneSession(Session):
    """A graph on the CPU, loaded for runs beside others and again for runs alone. Safe to run from several threads at once.

    Args:
        path, saturation_free, kernels, in_arena, restores_weights: as of Session; kernels are those of ATTENTION.
        threads: inside a run beside others.
        lone_threads: inside a run alone; if they are not more, the graph is loaded once.
    """

    def __init__(
        self,
        path: Path,
        threads: int,
        lone_threads: int,
        saturation_free: bool,
        kernels: Path | None = None,
        in_arena: bool = False,
        restores_weights: bool = False,
    ) -> None:
        options = saturation_free, None, kernels, ATTENTION, in_arena, restores_weights
        super().__init__(path, threads, *options)
        self._lone = Session(path, lone_threads, *options) if lone_threads > threads else None
        self.threads = f"{threads} ({lone_threads} alone)" if self._lone else str(threads)
        self._lock = threading.Lock()
        self._running = 0
        self._shared = 0  # next runs that others are expected beside

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: RunStop | None = None
    ) -> list[Array]:
        if self._lone is None:
            return super().run(inputs, outputs, stop)
        with self._lock:
            self._shared = SHARED_RUNS if self._running else max(0, self._shared - 1)
            alone = not self._shared
            self._running += 1
        try:
            return self._lone.run(inputs, outputs, stop) if alone else super().run(inputs, outputs, stop)
        finally:
            with self._lock:
                self._running -= 1
