"""The base of models that decode: devices and graphs behind one engine, and streams of what it decodes."""

import logging
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16, INT8, runs_on
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions
from triptych_serving.decoding.lane_factory import LaneGraphs
from triptych_serving.errors import DeviceError
from triptych_serving.models.model import Model
from triptych_serving.runtime.cpu_info import integer_extension, usable_cpus, usable_memory
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.model_devices import ModelDevices
from triptych_serving.runtime.session import SessionPlace
from triptych_serving.scheduling.request import Call, Listener, Row

logger = logging.getLogger(__name__)

Lanes = TypeVar("Lanes", bound=LaneGraphs)


@dataclass(frozen=True)
class DecodeModelOptions:
    """Options for loading models that translate or continue texts."""

    precision: str | None = None  # None: the bundle's default
    engine: EngineOptions = field(default_factory=lambda: EngineOptions(workers=usable_cpus()))
    eager: bool = False  # create lanes of every kind at the start, not when the first request needs them
    # Of models that continue texts:
    max_context: int = 8_192  # tokens of prompt and output; the caches have room for them
    prefix_cache_bytes: int = 256 << 20  # keys and values of prompts that are kept; 0: none


class DecodeModel(Model, Generic[Lanes]):
    """A model that translates or continues texts."""

    lanes: Lanes
    engine: DecodeEngine

    def __init__(self, name: str, version: int, bundle: Bundle, options: DecodeModelOptions) -> None:
        super().__init__(name, version, bundle, options.precision, options.engine.devices, options.engine.limits)
        if foreign := [device for device in self.devices if device.kind not in runs_on(self.precision)]:
            raise DeviceError(f"precision {self.precision} runs on the CPU only, not on {', '.join(map(str, foreign))}")

    @property
    def reserved(self) -> Mapping[Device, int]:
        return self._model_devices.reserved

    def close(self, drain: bool = True) -> None:
        self.engine.close(drain)
        self.lanes.close()
        self._model_devices.close()

    def _start(
        self,
        engine: EngineOptions,
        make: Callable[[Sequence[SessionPlace]], Lanes],
        plan: Callable[[], Mapping[str, int]],
        eager: bool,
        wide_workers: int = 0,
    ) -> None:
        """Reserve memory, load the first graphs and start the engine.

        Args:
            make: makes `lanes`. Its places are empty except for fp16: graphs of other precisions run on the CPU.
            plan: returns the bytes to reserve on each GPU, by purpose.
            eager: load all graphs.
            wide_workers: as for DecodeEngine.
        """
        self._engine_options = engine
        what = f"model {self.name} version {self.version}"
        self._model_devices = ModelDevices(self.devices, engine.budgets, what, plan() if engine.on_gpus else {})
        with ExitStack() as after_failure:
            after_failure.callback(self._model_devices.close)
            self.lanes = make(self._model_devices.places if self.precision == FP16 else ())
            after_failure.callback(self.lanes.close)
            self.engine = DecodeEngine(self.lanes.make, engine, first=self.lanes.usual, wide_workers=wide_workers)
            after_failure.callback(self.engine.close, drain=False)
            self.engine.start(self.lanes.open_all() if eager else ())
            after_failure.pop_all()
        memory = usable_memory()
        if not engine.on_gpus and self.engine.bytes > memory // 2:
            logger.warning(
                "%s: caches may take %s MB of %s MB of memory, if all rows are as long as the model allows; "
                "choose fewer --slots or --workers",
                *(what, f"{self.engine.bytes / 1e6:,.0f}", f"{memory / 1e6:,.0f}"),
            )

    def _resources(self, kernels: Path | None) -> str:
        """Describe devices, precision with its instructions, and memory, for the log; `kernels`: library of CPU sessions."""
        by = f" by {integer_extension()}" if self.precision.startswith(INT8) and integer_extension() else ""
        by += ", native kernels" if kernels and self.devices == (CPU,) else ""
        where, engine = "CPU" if self.devices == (CPU,) else ", ".join(map(str, self.devices)), self._engine_options
        return (
            f"{where}, {self.precision}{by}, {engine.worker_count} threads x {engine.slots} rows, "
            f"weights {self.weight_bytes / 1e6:,.0f} MB, caches up to {self.engine.bytes / 1e6:,.0f} MB"
        )

    def _stream(self, rows: Sequence[Row], advance: Callable[[Row], str]) -> Iterator[str]:
        """Decode rows in this process; yields what `advance` returns of each that changed, but empty strings.

        Raises:
            ServingError: the engine rejected the rows, or the runtime failed.
        """
        self.lanes.open_for(rows)
        changes: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        call = Call(rows, _ChangeListener(changes), streams=True)
        self.engine.submit(call)
        try:
            while not call.over:
                changed = changes.get()
                if changed is not None and call.error is None and (piece := advance(changed)):
                    yield piece
            if call.error is not None:
                raise call.error
            if piece := advance(rows[-1]):
                yield piece
        finally:
            if not call.over:
                self.engine.cancel(call)


class _ChangeListener(Listener):
    """Puts each row with a new token into a queue, and None at the end."""

    def __init__(self, changes: "queue.SimpleQueue[Row | None]") -> None:
        self._changes = changes

    def on_token(self, row: Row) -> None:
        self._changes.put(row)

    def on_end(self) -> None:
        self._changes.put(None)
