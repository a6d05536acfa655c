"""The engine of a model of the text or image family: over sessions of the CPU, or over a graph bound to memory of devices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16
from triptych_serving.bundle.manifest.base import Graph
from triptych_serving.encoding.cuda.device_resources import DeviceResources, GraphSpec, open_device_resources
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.cuda.replica_pool import ReplicaPool
from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions, Runner
from triptych_serving.encoding.options import EncoderOptions, describe_devices, describe_runs
from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.process import forget_frames
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits


@dataclass(frozen=True)
class EncoderGraph:
    """A graph that runs once, and what runs it."""

    what: str  # whose it is, for errors: `model NAME version 1`
    bundle: Bundle
    weight_bytes: int
    precision: str
    graph: Graph
    width: int  # numbers of a hidden state, or more
    runner: Callable[[Session], Runner]
    plan: Callable[[BatchLimits, Session], GraphPlan]
    device_runner: Callable[[ReplicaPool], Runner]


@dataclass(frozen=True)
class LoadedEncoder:
    """An engine at work, and what it holds."""

    engine: OneShotEngine
    station: DeviceResources | None
    takes: str  # of the machine, for the log

    @property
    def reserved(self) -> dict[Device, int]:
        """Bytes on each GPU."""
        return self.station.reserved if self.station else {}

    def close(self, drain: bool) -> None:
        """Stop the engine, then free what it holds. Idempotent."""
        self.engine.close(drain)
        if self.station:
            self.station.close()


def load_encoder(graph: EncoderGraph, options: EncoderOptions) -> LoadedEncoder:
    """Load, warm up, start. Graphs of precision fp16 are bound to memory of the devices, which may be the CPU's.

    Raises:
        BundleError: the graph cannot be loaded, or not there.
        DeviceError: a device cannot be used, or has no room.
        EngineError: a device failed.
    """
    size = graph.weight_bytes
    path = graph.bundle.path(graph.graph.graph)
    threads, engine = options.engine(size, usable_cpus())
    if graph.precision == FP16:
        engine = options.device_engine()
        ware = GraphSpec(graph.what, path, size, graph.width, threads, partial(graph.plan, engine.limits))
        station = open_device_resources(ware, options.devices, options.budgets, engine.threads)
        takes = describe_devices(graph.precision, options.devices, size)
        return LoadedEncoder(_start(graph.device_runner(station.fleet), engine, station), station, takes)
    if CPU not in options.devices:
        raise BundleError(graph.bundle.folder, [f"precision {graph.precision} runs on the CPU only"])
    session = Session(path, threads, graph.graph.saturation_free)
    takes = describe_runs(graph.precision, threads, engine.runs, size)
    return LoadedEncoder(_start(graph.runner(session), engine, None), None, takes)


def _start(runner: Runner, options: OneShotOptions, station: DeviceResources | None) -> OneShotEngine:
    engine = OneShotEngine(runner, options)
    try:
        engine.start()
    except BaseException as error:
        if station:
            forget_frames(error)  # no session must outlive its stream
            station.close()
        raise
    return engine
