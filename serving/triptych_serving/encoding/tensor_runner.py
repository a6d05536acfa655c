"""Batches of plain tensors through a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from triptych_serving.encoding.engine import Runner
from triptych_serving.errors import EngineError, InvalidInputError, TooLargeError
from triptych_serving.runtime.session import (
    OPERATOR_ERRORS,
    Array,
    InvalidArgument,
    RunStop,
    Session,
    lacks_memory,
    shrink_arena,
)
from triptych_serving.runtime.session_pool import SessionPool
from triptych_serving.scheduling.request import Item

Tensors = Mapping[str, Array]
NO_MEMORY = (
    "the graph needs more memory to compute them than is left for it (on the CPU half of the machine's or container's memory "
    "serves all models of plain tensors); send fewer rows or smaller values"
)


@dataclass(eq=False, slots=True)
class TensorRows:
    """The inputs of one request: the payload of an Item, whose result is a dict of the requested outputs by name."""

    inputs: Tensors
    rows: int  # length of the first dimension, where the model batches; else 1
    outputs: tuple[str, ...]

    @property
    def form(self) -> Any:
        """Sizes of all dimensions but the first: requests with the same ones may run together."""
        return tuple(array.shape[1:] for array in self.inputs.values())


@dataclass(eq=False, slots=True)
class TensorBatch:
    """Requests that run together, and after the run their outputs."""

    items: list[Item]
    outputs: tuple[str, ...]
    inputs: Tensors
    results: Sequence[Array] = ()
    stop: RunStop = field(default_factory=RunStop)


class TensorRunner(Runner):
    """Concatenates the rows of requests with tensors of the same sizes and runs them together.

    Args:
        session: the graph, on the CPU or on devices.
    """

    def __init__(self, session: Session | SessionPool) -> None:
        self._session = session
        self._rejections = InvalidArgument if isinstance(session, SessionPool) else OPERATOR_ERRORS
        self._shares = True  # until a graph gives other numbers of rows than it is given

    def prepare(self, items: Sequence[Item]) -> list[TensorBatch]:
        groups: dict[Any, list[Item]] = {}
        for item in items:
            groups.setdefault(item.payload.form if self._shares else id(item), []).append(item)
        return [_joined(group) for group in groups.values()]

    def run(self, batch: list[TensorBatch]) -> list[TensorBatch]:
        for part in batch:
            try:
                part.results = self._session.run(part.inputs, part.outputs, part.stop)
            except EngineError as error:
                lacking = lacks_memory(error.__cause__)
                if lacking:
                    shrink_arena()  # for the next attempt: free memory may be in pieces that were too small
                if len(batch) == len(part.items) == 1:
                    if lacking:
                        raise TooLargeError(f"inputs: {NO_MEMORY}: {error.__cause__}") from error
                    if isinstance(error.__cause__, self._rejections):
                        raise InvalidInputError("inputs", f"the graph rejects them: {error.__cause__}") from error
                raise
        return batch

    def stop(self, batch: list[TensorBatch]) -> None:
        for part in batch:
            part.stop.set()

    def finish(self, items: Sequence[Item], outputs: list[TensorBatch]) -> None:
        for part in outputs:
            found = dict(zip(part.outputs, part.results, strict=True))
            if len(part.items) == 1:
                part.items[0].result = {name: found[name] for name in part.outputs}
                continue
            rows = sum(item.payload.rows for item in part.items)
            if any(array.shape[:1] != (rows,) for array in found.values()):
                # A graph that keeps some rows only: nobody may get those of others. The engine runs each request again.
                self._shares = False
                raise EngineError(f"{rows} rows were run together, outputs have shapes {[a.shape for a in found.values()]}")
            first = 0
            for item in part.items:
                row: TensorRows = item.payload
                item.result = {name: found[name][first : first + row.rows].copy() for name in row.outputs}
                first += row.rows


def _joined(items: list[Item]) -> TensorBatch:
    rows: list[TensorRows] = [item.payload for item in items]
    names = tuple(dict.fromkeys(name for row in rows for name in row.outputs))
    inputs = rows[0].inputs
    if len(rows) > 1:
        inputs = {name: np.concatenate([row.inputs[name] for row in rows]) for name in inputs}
    return TensorBatch(items, names, inputs)
