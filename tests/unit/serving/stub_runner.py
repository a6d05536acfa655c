"""A runner without a runtime: an item's result is its payload, doubled."""

import threading
from collections.abc import Sequence
from typing import Any

from triptych_serving.encoding.engine import Runner
from triptych_serving.scheduling.request import Item

from .stub_lane import Gate

INDIGESTIBLE, POISON, UNREADABLE = "fails in prepare", "fails in run", "fails in finish"


class StubRunner(Runner):
    """A runner whose runs wait at `gate`, if there is one."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.prepared = 0
        self.running = 0
        self.most_running = 0
        self.most_planned = 0  # batches prepared, or being prepared, whose run has not ended
        self.held = self.most_held = 0  # batches that were prepared and not released
        self.batches: list[list[Any]] = []  # payloads of each run, in the order in which they began
        self._planned = 0
        self._lock = threading.Lock()
        self._gate = gate

    def prepare(self, items: Sequence[Item]) -> list[Any]:
        payloads = [item.payload for item in items]
        if INDIGESTIBLE in payloads:
            raise RuntimeError("cannot prepare")
        with self._lock:
            self.prepared += 1
            self._planned += 1
            self.most_planned = max(self.most_planned, self._planned)
            self.held += 1
            self.most_held = max(self.most_held, self.held)
        return payloads

    def run(self, batch: list[Any]) -> list[Any]:
        with self._lock:
            self.batches.append(batch)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        if self._gate is not None:
            self._gate.pass_one()
        with self._lock:
            self.running -= 1
            self._planned -= 1
        if POISON in batch:
            raise RuntimeError("cannot run")
        return [payload * 2 for payload in batch]

    def finish(self, items: Sequence[Item], outputs: list[Any]) -> None:
        for item, output in zip(items, outputs, strict=True):
            if item.payload == UNREADABLE:
                raise RuntimeError("cannot finish")
            item.result = output

    def release(self, batch: list[Any]) -> None:
        with self._lock:
            self.held -= 1
