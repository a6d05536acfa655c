"""Options of text and image models, and the items of one request."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Generic, TypeVar

from triptych_serving.encoding.engine import OneShotOptions
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

Result = TypeVar("Result")

MOST_THREADS = 4  # of one run; further threads are better used for more runs
# Of weights. With models below SMALL_BYTES, threads inside a run cost more than they gain, except for a run alone; for those
# the graph is loaded a second time. With models below TINY_BYTES they cost more even there: runs take a millisecond.
SMALL_BYTES, TINY_BYTES = 32 << 20, 8 << 20
OVERLAP = 2  # batches in progress on each GPU: one runs, one waits on the device

# Defaults on a GPU. It runs a few thousand tokens through BERT-base in little more time than one: so many justify a batch of
# their own behind the one that runs, and many more would only add latency.
GPU_BATCHES = BatchLimits(batch_tokens=16_384, batch_rows=256, saturating_tokens=4_096, padding=1 / 8)
CPU_BATCHES = BatchLimits()
QUEUE_LIMITS = {each.name for each in fields(QueueLimits)}


@dataclass(frozen=True)
class EncoderOptions:
    """Options for loading a text or image model.

    Threads inside a run shorten a lone request, and batches of BERT-base ran 12 to 19 % faster with two threads in one run than
    in two runs of one thread. With a model of 5 million parameters, runs served 40 % more requests a second through gRPC.
    """

    precision: str | None = None  # None: the bundle's default
    threads: int | None = None  # inside one run of the graph; None: chosen for the model
    runs: int | None = None  # batches that run at once; None: chosen for the number of CPUs
    limits: BatchLimits = field(default_factory=BatchLimits)
    devices: tuple[Device, ...] = (CPU,)  # or GPUs, never both: batches go to whichever is free
    budgets: Budgets | None = None  # of the GPUs' memory; None: not limited
    gives_way: bool = False  # the engine's threads, and those that decode images, yield to the process's main thread

    def engine(self, weight_bytes: int, cpus: int) -> tuple[int, OneShotOptions]:
        """Return the threads inside one run and the engine's options, for a model of this size on the CPU."""
        wanted = 1 if weight_bytes < SMALL_BYTES else min(MOST_THREADS, cpus)
        threads = self.threads or max(1, min(wanted, cpus // (self.runs or 1)))
        runs = self.runs or max(1, cpus // threads)
        return threads, OneShotOptions(runs, self.limits, gives_way=self.gives_way)

    def lone_threads(self, weight_bytes: int, cpus: int) -> int:
        """Return the threads inside a run while no other is in progress; 0: as many as always."""
        return min(MOST_THREADS, cpus) if not self.threads and TINY_BYTES <= weight_bytes < SMALL_BYTES else 0

    def device_engine(self) -> OneShotOptions:
        """Return the engine's options for graphs bound to device memory: a run on each device."""
        return OneShotOptions(len(self.devices), self.device_limits, OVERLAP, self.gives_way)

    @property
    def device_limits(self) -> BatchLimits:
        """Bounds of batches on the devices; values that differ from the CPU's defaults are kept."""
        if CPU in self.devices:
            return self.limits
        batch = [each.name for each in fields(BatchLimits) if each.name not in QUEUE_LIMITS]
        usual = {name for name in batch if getattr(self.limits, name) == getattr(CPU_BATCHES, name)}
        return replace(self.limits, **{name: getattr(GPU_BATCHES, name) for name in usual})


DEFAULTS = EncoderOptions()


@dataclass(frozen=True)
class Work(Generic[Result]):
    """One request, checked and tokenized: `items` go to the engine; once they are done, `read` yields the results in order."""

    items: Sequence[Item]
    read: Callable[[], Iterator[Result]]
    size: int  # characters that `read` processes, roughly
    field: str = "contents"  # of the request, that the items come from
