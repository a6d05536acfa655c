"""Loads text and image models: an engine over a CPU session, or over a graph bound to device memory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16
from triptych_serving.bundle.manifest.base import Graph
from triptych_serving.encoding.cuda.device_resources import (
    DeviceResources,
    GraphSpec,
    open_device_resources,
    open_device_sessions,
)
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions, Runner
from triptych_serving.encoding.lone_session import LoneSession
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.process import forget_frames
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits


@dataclass(frozen=True)
class EncoderGraph:
    """A graph that runs once per input, and the runners for it."""

    owner: str  # for error messages: `model NAME version 1`
    bundle: Bundle
    weight_bytes: int
    precision: str
    graph: Graph
    width: int  # of a hidden state, or more
    runner: Callable[[Session], Runner]
    plan: Callable[[BatchLimits, Session], GraphPlan] | None  # None: requests alone know the shapes, on GPUs too
    device_runner: Callable[[Any], Runner]  # takes a ReplicaPool or, without a plan, a SessionPool


@dataclass(frozen=True)
class LoadedEncoder:
    """A running engine and its resources."""

    engine: OneShotEngine
    resources: DeviceResources[Any] | None
    takes: str  # device, precision and threads, for the log

    @property
    def reserved(self) -> dict[Device, int]:
        """Reserved bytes on each GPU."""
        return self.resources.reserved if self.resources else {}

    def close(self, drain: bool) -> None:
        """Stop the engine, then free its resources. Idempotent."""
        self.engine.close(drain)
        if self.resources:
            self.resources.close()


def load_encoder(graph: EncoderGraph, options: EncoderOptions) -> LoadedEncoder:
    """Load a graph, warm up and start its engine. Graphs in fp16 are bound to the memory of devices, which may be the CPU.

    Raises:
        BundleError: the graph cannot be loaded, or does not run on the devices.
        DeviceError: a device cannot be used, or has no room.
        EngineError: a device failed.
    """
    size = graph.weight_bytes
    weights = f"weights of {size / 1e6:,.0f} MB"
    path = graph.bundle.path(graph.graph.graph)
    threads, engine = options.engine(size, usable_cpus())
    if graph.precision == FP16 or (graph.plan is None and CPU not in options.devices):
        engine = options.device_engine()
        plan = graph.plan and partial(graph.plan, engine.limits)
        spec = GraphSpec(graph.owner, path, size, graph.width, threads, plan)
        resources: DeviceResources[Any] = (
            open_device_sessions(spec, options.devices, options.budgets)
            if plan is None
            else open_device_resources(spec, options.devices, options.budgets, engine.threads)
        )
        names = "CPU" if CPU in options.devices else ", ".join(map(str, options.devices))
        takes = f"{names}, {graph.precision}, {weights}"
        return LoadedEncoder(_start(graph.device_runner(resources.pool), engine, resources), resources, takes)
    if CPU not in options.devices:
        raise BundleError(graph.bundle.folder, [f"precision {graph.precision} runs on the CPU only"])
    session = LoneSession(path, threads, options.lone_threads(size, usable_cpus()), graph.graph.saturation_free)
    takes = f"CPU, {graph.precision}, runs: {engine.runs}, threads in a run: {session.threads}, {weights}"
    return LoadedEncoder(_start(graph.runner(session), engine, None), None, takes)


def _start(runner: Runner, options: OneShotOptions, resources: DeviceResources[Any] | None) -> OneShotEngine:
    engine = OneShotEngine(runner, options)
    try:
        engine.start()
    except BaseException as error:
        if resources:
            forget_frames(error)  # no session may outlive its stream
            resources.close()
        raise
    return engine
