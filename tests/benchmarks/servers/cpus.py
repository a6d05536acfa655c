"""CPUs of a run, the same for every candidate."""

import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path

import click

TASKS = Path("/proc/self/task")


def choose(cpus: int) -> tuple[frozenset[int], frozenset[int]]:
    """Return the first `cpus` of the CPUs that this process may use, and the others."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= cpus <= len(allowed):
        raise click.UsageError(f"--cpus is {cpus}, this process may use 1 to {len(allowed)}")
    return frozenset(allowed[:cpus]), frozenset(allowed[cpus:])


def pin(cpus: Set[int]) -> None:
    """Keep this process, all its threads and its future children on `cpus`."""
    for task in TASKS.iterdir():
        os.sched_setaffinity(int(task.name), cpus)
    os.environ["RAYON_NUM_THREADS"] = str(len(cpus))  # of tokenizers; read when it first runs


@contextmanager
def held(cpus: Set[int], variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Keep the processes started in the `with` block on `cpus`, with further environment variables."""
    affinity, environment = os.sched_getaffinity(0), dict(os.environ)
    os.sched_setaffinity(0, cpus)
    os.environ.update({"RAYON_NUM_THREADS": str(len(cpus)), **(variables or {})})
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)
        os.environ.clear()
        os.environ.update(environment)
