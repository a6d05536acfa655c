"""Members that the manifests of all tasks share; the name of a precision tells the devices that it is made for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from triptych_serving.bundle.fields import JsonFields
from triptych_serving.runtime.device import DeviceKind

FP16 = "fp16"  # everything in 16 bits, but for sums that need more; the step feeds itself from the device's memory
INT8, INT4 = "int8", "int4"  # the second: decoder-only models
INT8_CACHES, INT4_INT8_CACHES = "int8-caches", "int4-int8-caches"
# Generative models: the same weights, and key-value caches in int8.
WITH_INT8_CACHES = {INT8: INT8_CACHES, INT4: INT4_INT8_CACHES}
INT8_WEIGHTS = "int8-weights"  # encoders: matrices in int8, which are float32 once they are loaded


def runs_on(precision: str) -> frozenset[DeviceKind]:
    """Kinds of devices that can run a precision's graphs; the CPU runs all of them, those for CUDA slowly."""
    return frozenset({"cpu", "cuda"} if precision == FP16 else {"cpu"})


FORMAT = 1  # that export writes
OLDEST_FORMAT = 1  # that is read
FILE_NAME = "bundle.json"
MAX_FILE_BYTES = 64 * 2**20  # of bundle.json; those with the most labels have a few MB


@dataclass(frozen=True)
class StoredFile:
    """Recorded size and SHA-256 of a file."""

    sha256: str
    bytes: int


class Graphs(Protocol):
    """One precision's graphs."""

    @property
    def files(self) -> tuple[str, ...]:
        """Their file names."""


@dataclass(frozen=True)
class Graph:
    """One precision of a model that is one graph."""

    graph: str  # file name
    saturation_free: bool = False  # integer weights of 7 bits: no product overflows, whatever the processor
    attend: str = ""  # file name of the graph with attention weights; empty in old bundles; of image models only ViT has one

    @property
    def files(self) -> tuple[str, ...]:
        return (self.graph, self.attend) if self.attend else (self.graph,)


@dataclass(frozen=True)
class Manifest:
    """The parsed `bundle.json`, as far as every task has it."""

    task: str
    family: str
    precisions: Mapping[str, Graphs]
    default_precision: str
    files: Mapping[str, StoredFile]
    provenance: Mapping[str, Any]
    metrics: Mapping[str, Any]
    parity: Mapping[str, Any]


def parse_common(fields: JsonFields) -> dict[str, Any]:
    """The common members but `precisions`, by name."""
    return {
        "task": fields.get("task", str),
        "family": fields.get("family", str),
        "default_precision": fields.get("default_precision", str),
        "files": fields.records("files", StoredFile),
        **{name: fields.object(name).values for name in ("provenance", "metrics", "parity")},
    }


def check_common(manifest: Manifest, needed: set[str], faults: list[str]) -> None:
    """Note what does not fit together; `needed` are files beside the graphs."""
    if manifest.default_precision not in manifest.precisions:
        faults.append(f"default_precision {manifest.default_precision!r} is not among precisions {sorted(manifest.precisions)}")
    graphs = {file for graphs in manifest.precisions.values() for file in graphs.files}
    faults.extend(f"files lists no {name!r}" for name in sorted((graphs | needed) - manifest.files.keys() - {""}))
    faults.extend(f"files: {name!r} is not a plain file name" for name in manifest.files if Path(name).name != name)


def check_names(name: str, values: tuple[str, ...], faults: list[str]) -> None:
    """Note an empty list, and names that are blank; several classes may have one name, as in transformers."""
    if not values:
        faults.append(f"{name} is empty")
    if any(not value.strip() for value in values):
        faults.append(f"{name}: one is blank")
