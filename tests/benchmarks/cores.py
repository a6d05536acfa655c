"""The CPUs that a run may use: the same for every candidate."""

import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import click

TASKS = Path("/proc/self/task")


def choose(cpus: int) -> tuple[frozenset[int], frozenset[int]]:
    """The first `cpus` of the CPUs that this process may use, and the others."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= cpus <= len(allowed):
        raise click.UsageError(f"--cpus is {cpus}, this process may use 1 to {len(allowed)}")
    return frozenset(allowed[:cpus]), frozenset(allowed[cpus:])


def pin(cpus: Set[int]) -> None:
    """Keep this process, the threads that it has and those to come, and its children on `cpus`."""
    for task in TASKS.iterdir():
        os.sched_setaffinity(int(task.name), cpus)
    os.environ["RAYON_NUM_THREADS"] = str(len(cpus))  # of tokenizers; read when it first runs


@contextmanager
def held(cpus: Set[int]) -> Iterator[None]:
    """Processes that are started within stay on `cpus`."""
    before, threads = os.sched_getaffinity(0), os.environ.get("RAYON_NUM_THREADS")
    os.sched_setaffinity(0, cpus)
    os.environ["RAYON_NUM_THREADS"] = str(len(cpus))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        if threads is None:
            del os.environ["RAYON_NUM_THREADS"]
        else:
            os.environ["RAYON_NUM_THREADS"] = threads
