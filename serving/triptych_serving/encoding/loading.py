"""Loads text and image models: an engine over a CPU session, or over a graph bound to device memory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16, INT8, INT8_WEIGHTS
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
from triptych_serving.encoding.tensor_runner import TensorRunner
from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.native.library import HEAD_MULTIPLE, native_kernels
from triptych_serving.runtime.process import forget_frames
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits


@dataclass(frozen=True)
class GraphRunners:
    """Makers of what runs a graph's batches on CPUs and GPUs; by default as plain tensors."""

    width: int = 0  # of a hidden state, or more
    on_cpu: Callable[[Session], Runner] = TensorRunner
    plan: Callable[[BatchLimits, Session], GraphPlan] | None = None  # None: requests alone know the shapes, on GPUs too
    on_devices: Callable[[Any], Runner] = TensorRunner  # takes a ReplicaPool or, without a plan, a SessionPool
    causal_head: int = 0  # channels of a head, if attention is causal


PLAIN_TENSORS = GraphRunners()


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


def load_encoder(
    owner: str, bundle: Bundle, precision: str, weight_bytes: int, file: Graph, runners: GraphRunners, options: EncoderOptions
) -> LoadedEncoder:
    """Load a graph, warm up and start its engine. Graphs in fp16 are bound to the memory of devices, which may be the CPU.

    Args:
        owner: for error messages: `model NAME version 1`.

    Raises:
        BundleError: the graph cannot be loaded, or does not run on the devices.
        DeviceError: a device cannot be used, or has no room.
        EngineError: a device failed.
    """
    weights, path = f"weights of {weight_bytes / 1e6:,.0f} MB", bundle.path(file.graph)
    threads, engine = options.engine(weight_bytes, usable_cpus())
    if precision == FP16 or (runners.plan is None and CPU not in options.devices):
        engine = options.device_engine()
        plan = runners.plan and partial(runners.plan, engine.limits)
        spec = GraphSpec(owner, path, weight_bytes, runners.width, threads, plan)
        resources: DeviceResources[Any] = (
            open_device_sessions(spec, options.devices, options.budgets)
            if plan is None
            else open_device_resources(spec, options.devices, options.budgets, engine.worker_count)
        )
        names = "CPU" if CPU in options.devices else ", ".join(map(str, options.devices))
        takes = f"{names}, {precision}, {weights}"
        return LoadedEncoder(_start(runners.on_devices(resources.pool), engine, resources), resources, takes)
    if CPU not in options.devices:
        raise BundleError(bundle.folder, [f"precision {precision} runs on the CPU only"])
    lone_threads = options.lone_threads(weight_bytes, usable_cpus())
    in_arena, restores_weights = runners.plan is None, precision == INT8_WEIGHTS
    own_int8 = precision == INT8 and file.saturation_free  # graphs of other programs may have operators of other forms
    kernels = native_kernels(runners.causal_head or HEAD_MULTIPLE) if runners.causal_head or own_int8 else None
    session = LoneSession(path, threads, lone_threads, file.saturation_free, kernels, in_arena, restores_weights)
    takes = f"CPU, {precision}, runs: {engine.runs}, threads in a run: {session.threads}, {weights}"
    return LoadedEncoder(_start(runners.on_cpu(session), engine, None), None, takes)


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
