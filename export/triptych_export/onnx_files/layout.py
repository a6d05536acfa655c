"""The ONNX files of a folder, and the precision of each.

Layouts: Optimum (`model.onnx`), sentence-transformers and transformers.js (`onnx/model*.onnx`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from onnx import ModelProto, TensorProto

from triptych_export.errors import SourceError
from triptych_export.onnx_files.checks import read_model, tensors_of

SUFFIX = ".onnx"
FOLDERS = (".", "onnx")
WHOLE = "model"  # one graph
FP32, INT8 = "fp32", "int8"
KINDS: Mapping[int, str] = {
    TensorProto.INT8: INT8,
    TensorProto.UINT8: INT8,
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}
# Of several int8 files the first is taken: for VNNI, for any processor, then those for other processors.
INT8_NAMES = ("qint8_avx512_vnni", "int8", "quantized", "quint8_avx2", "uint8", "qint8_avx512")


@dataclass(frozen=True)
class OnnxFile:
    """One checked ONNX file."""

    path: Path
    model: ModelProto

    @property
    def bytes(self) -> int:
        """Size of the file and of the files that it refers to."""
        places = {e.value for t in tensors_of(self.model.graph) for e in t.external_data if e.key == "location"}
        return sum(path.stat().st_size for path in (self.path, *(self.path.parent / place for place in places)))


def find_graphs(path: Path) -> dict[str, OnnxFile]:
    """Read the encoder graphs of a folder, or one file, by precision.

    Raises:
        SourceError: a file must not be run, or there is none that can be served.
    """
    if path.is_file():
        file = OnnxFile(path, read_model(path))
        return {precision_of(file.model): file}
    found: dict[str, OnnxFile] = {}
    for candidate in _candidates(path):
        file = OnnxFile(candidate, read_model(candidate))
        found.setdefault(precision_of(file.model), file)
    if not found:
        names = ", ".join(sorted(one.name for folder in FOLDERS for one in (path / folder).glob(f"*{SUFFIX}"))) or "none"
        raise SourceError(f"{path}: no model{SUFFIX} or onnx/model{SUFFIX}; ONNX files: {names}")
    return found


def has_graphs(path: Path) -> bool:
    """Tell whether a path is an ONNX file, or a folder with one for one-shot models."""
    return (path.suffix == SUFFIX and path.is_file()) or (path.is_dir() and any(_candidates(path)))


def precision_of(model: ModelProto) -> str:
    """Return the precision of most of a graph's weights."""
    sizes: Counter[str] = Counter()
    for tensor in tensors_of(model.graph):
        if len(tensor.dims) > 1:
            sizes[KINDS.get(tensor.data_type, FP32)] += prod(tensor.dims)
    return max(sizes, key=lambda kind: sizes[kind], default=FP32)


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield the files to look at: the plain one, then the quantized ones in order of preference."""
    names = (WHOLE, *(f"{WHOLE}_{suffix}" for suffix in INT8_NAMES))
    for name in names:
        for place in FOLDERS:
            if (path := folder / place / f"{name}{SUFFIX}").is_file():
                yield path
                break
