"""Metrics of requests: counted in the event loop, as calls come and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from triptych_serving.models.model import Model
from triptych_serving.observability.families import Labels
from triptych_serving.observability.names import method_of
from triptych_serving.observability.series import ModelSeries, RequestCollector

if TYPE_CHECKING:
    from triptych_serving.rpc.call_context import CallContext, ModelUse

KEEP_SECONDS = 600.0  # that a model's series outlive it, so that the last counts before its end are read too
MAX_METHODS = 256  # far more than a server has
OTHER_METHOD = "_OTHER"
NO_MODEL: Labels = ("", "")  # the call ended before it had one, or had several


class MetricsObserver:
    """Counts the calls that it hears of. Labels are names of methods, of loaded models and of codes, nothing else.

    Args:
        registry: where its metrics are found.
        models: those that are loaded.
        clock: monotonic seconds.
    """

    def __init__(
        self, registry: CollectorRegistry, models: Callable[[], Sequence[Model]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._models = models
        self._clock = clock
        self._active: dict[str, int] = {}  # calls, by method
        self._series: dict[Labels, ModelSeries] = {NO_MODEL: ModelSeries()}
        self._gone: dict[Labels, float] = {}  # since when
        registry.register(RequestCollector(self._active, self._series))

    def expect(self, methods: Iterable[str]) -> None:
        """Show these methods from the start, with 0: a series that begins with 1 has no increase for Prometheus."""
        for method in methods:
            self._known(method)

    def on_start(self, rpc: CallContext) -> None:
        self._active[self._known(method_of(rpc))] += 1

    def on_use(self, rpc: CallContext, use: ModelUse) -> None:
        self._of((use.model, use.version)).add(rpc, use, self._known(method_of(rpc)), self._clock())

    def on_end(self, rpc: CallContext) -> None:
        method = self._known(method_of(rpc))
        self._active[method] -= 1
        used = {(use.model, use.version) for use in rpc.uses}
        self._of(used.pop() if len(used) == 1 else NO_MODEL).end(method, rpc.code)

    def forget(self) -> None:
        """Drop the series of models that have been gone for long enough."""
        now, there = self._clock(), {(model.name, str(model.version)) for model in self._models()}
        for labels in self._series.keys() - there - {NO_MODEL}:
            if now - self._gone.setdefault(labels, now) >= KEEP_SECONDS:
                del self._series[labels]
                del self._gone[labels]
        for labels in self._gone.keys() & there:
            del self._gone[labels]

    def _of(self, labels: Labels) -> ModelSeries:
        if labels not in self._series:
            self._series[labels] = ModelSeries()
        return self._series[labels]

    def _known(self, method: str) -> str:
        """As a label."""
        if method in self._active:
            return method
        if len(self._active) >= MAX_METHODS:
            method = OTHER_METHOD
        if method not in self._active:
            self._active[method] = 0
            self._series[NO_MODEL].expect(method)
        return method
