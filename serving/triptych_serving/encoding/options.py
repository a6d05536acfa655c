"""How models that run once are loaded, and what one request asks of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Generic, TypeVar

from triptych_serving.encoding.engine import OneShotOptions
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

Result = TypeVar("Result")

MOST_THREADS = 4  # beyond, more threads in one run are worth less than more runs
SMALL_BYTES = 32 << 20  # of weights; sharing the operators of a smaller model among threads costs more than it brings
OVERLAP = 2  # batches on their way at once on each GPU: one runs, one waits on the device

# Of batches on a GPU, where a limit is not chosen. A GPU runs a BERT-base of a few thousand tokens in little more than the time
# of one; so much is worth a batch of its own behind the one that runs, and much more would only make it late.
GPU_BATCHES = BatchLimits(batch_tokens=16_384, batch_rows=256, saturating_tokens=4_096, padding=1 / 8)
CPU_BATCHES = BatchLimits()
QUEUE_LIMITS = {each.name for each in fields(QueueLimits)}


@dataclass(frozen=True)
class EncoderOptions:
    """How a model of the text or image family is loaded.

    Threads inside a run shorten a lone request, and BERT-base's batches ran 12 to 19 % faster with two threads in one run than
    as two runs of one. For a model of 5 million parameters runs gave 40 % more requests a second through gRPC.
    """

    precision: str | None = None  # None: the bundle's default
    threads: int | None = None  # inside one run of the graph; None: as many as suit the model
    runs: int | None = None  # batches that run at once; None: as the CPUs allow
    limits: BatchLimits = field(default_factory=BatchLimits)
    devices: tuple[Device, ...] = (CPU,)  # or GPUs, never both: batches go to whichever is free
    budgets: Budgets | None = None  # of the GPUs' memory; None: nothing is counted
    gives_way: bool = False  # the engine's threads do, and those that decode images, to the process's main one

    def engine(self, weight_bytes: int, cpus: int) -> tuple[int, OneShotOptions]:
        """Threads inside one run, and the engine's options, for a model of this size."""
        wanted = 1 if weight_bytes < SMALL_BYTES else min(MOST_THREADS, cpus)
        threads = self.threads or max(1, min(wanted, cpus // (self.runs or 1)))
        runs = self.runs or max(1, cpus // threads)
        return threads, OneShotOptions(runs, self.limits, gives_way=self.gives_way)

    def device_engine(self) -> OneShotOptions:
        """The engine's options for graphs that are bound to memory of the devices: a run on each."""
        return OneShotOptions(len(self.devices), self.device_limits, OVERLAP, self.gives_way)

    @property
    def device_limits(self) -> BatchLimits:
        """Of batches there; those that were chosen stay."""
        if CPU in self.devices:
            return self.limits
        batch = [each.name for each in fields(BatchLimits) if each.name not in QUEUE_LIMITS]
        usual = {name for name in batch if getattr(self.limits, name) == getattr(CPU_BATCHES, name)}
        return replace(self.limits, **{name: getattr(GPU_BATCHES, name) for name in usual})


DEFAULTS = EncoderOptions()


def describe_runs(precision: str, threads: int, runs: int, weight_bytes: int) -> str:
    """What a model of this family takes of the machine, for the log."""
    return f"CPU, {precision}, runs: {runs}, threads in a run: {threads}, weights of {weight_bytes / 1e6:,.0f} MB"


def describe_devices(precision: str, devices: Sequence[Device], weight_bytes: int) -> str:
    """The same for a model that is bound to memory of devices."""
    names = "CPU" if CPU in devices else ", ".join(map(str, devices))
    return f"{names}, {precision}, weights of {weight_bytes / 1e6:,.0f} MB"


@dataclass(frozen=True)
class Work(Generic[Result]):
    """One request, checked and tokenized: `items` go to the engine; once they are done, `read` has the results, in order."""

    items: Sequence[Item]
    read: Callable[[], list[Result]]
    size: int  # characters that `read` goes through, roughly
    field: str = "contents"  # the request's, that the items come from
