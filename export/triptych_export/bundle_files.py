"""Files of a bundle that all families write alike: graphs, weights, tokenizer, manifest."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto
from tokenizers import Tokenizer

from triptych.version import __version__
from triptych_export.graphs.attention import write_attention_graph
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.dynamic import quantize
from triptych_export.quantization.four_bit import quantize_four_bit
from triptych_export.quantization.functions import fuse_byte_norms
from triptych_export.quantization.weight_only import quantize_weights
from triptych_export.quantization.weights_file import WeightsFile
from triptych_serving.bundle.bundle import sha256
from triptych_serving.bundle.manifest import (
    FILE_NAME,
    FORMAT,
    FP16,
    INT4,
    INT4_INT8_CACHES,
    INT8,
    INT8_CACHES,
    INT8_WEIGHTS,
    WITH_INT8_CACHES,
)
from triptych_serving.bundle.manifest.base import Graphs
from triptych_serving.bundle.manifest.image import LABELS_FILE
from triptych_serving.runtime.external_data import external_files
from triptych_serving.runtime.session import Session

FP32 = "fp32"
PRECISIONS = (FP32, INT8)
INTEGER = (INT8, INT8_CACHES)  # with the same weights
ATTEND = "attend"  # kind of the graph with attention weights
SHORT_PRECISION = "int8-shortlist"  # translation models with a shortlist; needs sentence pairs
EXTRAS = (INT8_CACHES, FP16, INT8_WEIGHTS, INT4, INT4_INT8_CACHES)  # on request, or by default for some kinds of models
# Bits of int8 weights, see `quantize`: 7 allows the fast kernels everywhere, without VNNI 1.3 times faster than exact 8 bits.
WEIGHT_BITS = 7


def write_graph(graph: Graph, path: Path, weights: WeightsFile, precision: str, byte_norms: bool = False) -> None:
    """Write a traced graph in a precision, and its large tensors to `weights`; with `byte_norms` fuse norms of int8 graphs."""
    converted = _convert(graph, precision)
    if byte_norms and precision in INTEGER:
        fuse_byte_norms(converted)
    del converted.model.graph.value_info[:]
    _write(converted, path, weights)


def write_kept_graph(model: ModelProto, source: Path, folder: Path, precision: str) -> None:
    """Write the only graph of a precision, as an ONNX file in the folder `source` has it.

    Shapes inside the graph stay: the runtime fuses nodes by them, so that without them sums have another order.
    """
    weights = WeightsFile(folder / f"weights.{precision}.bin")
    _write(Graph.of_file(model, source), folder / f"graph.{precision}.onnx", weights)


def _write(graph: Graph, path: Path, weights: WeightsFile) -> None:
    """Write a graph without notes of its producer, such as Python stack traces, and its large tensors to `weights`."""
    graph.part_tables()
    model = graph.model
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.metadata_props[:], model.graph.metadata_props[:]
    model.producer_name, model.producer_version, model.doc_string = "triptych", __version__, ""
    weights.externalize(graph)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _convert(graph: Graph, precision: str) -> Graph:
    if precision in INTEGER:
        return quantize(graph, WEIGHT_BITS)
    if precision == INT8_WEIGHTS:
        return quantize_weights(graph)
    return quantize_four_bit(graph) if precision == INT4 else graph.copy()


def written_precisions(shipped: Sequence[str]) -> tuple[str, ...]:
    """List the precisions whose graphs are needed: fp32, with which the others are compared, and those of `shipped`."""
    base = {SHORT_PRECISION: INT8, **{cached: weights for weights, cached in WITH_INT8_CACHES.items()}}
    integer = [base[name] for name in shipped if name in base]
    return tuple(dict.fromkeys([FP32, *integer, *(name for name in shipped if name != SHORT_PRECISION)]))


def write_encoder(folder: Path, precisions: Sequence[str], trace: Callable[[bool], Graph], attends: bool = True) -> None:
    """Write the graph of an encoder model in the given precisions, and with `attends` that of its attention.

    `trace` makes the graph, in float16 if asked to.
    """
    graphs = {half: trace(half) for half in {precision == FP16 for precision in precisions}}
    for precision in precisions:
        weights = WeightsFile(folder / f"weights.{precision}.bin")
        write_graph(graphs[precision == FP16], path := folder / f"graph.{precision}.onnx", weights, precision)
        if attends:
            write_attention_graph(path, folder / f"{ATTEND}.{precision}.onnx")


def graphs_member(kinds: Sequence[str], precision: str, kept: bool = False) -> dict[str, Any]:
    """Manifest member of a precision whose graphs are `<kind>.<precision>.onnx`; `kept`: another program quantized them."""
    exact = {"saturation_free": True} if precision in INTEGER and WEIGHT_BITS == 7 and not kept else {}
    return {**{kind: f"{kind}.{precision}.onnx" for kind in kinds}, **exact}


def encoder_precisions(precisions: Sequence[str], attends: bool) -> dict[str, dict[str, Any]]:
    """Manifest member `precisions` for the files of `write_encoder`."""
    kinds = ("graph", ATTEND) if attends else ("graph",)
    return {precision: graphs_member(kinds, precision) for precision in precisions}


def open_encoder(folder: Path, precision: str) -> Session:
    """Open a graph of `write_encoder` on the CPU, with serving's session."""
    graph = graphs_member(("graph",), precision)
    exact, restores = graph.get("saturation_free", False), precision == INT8_WEIGHTS
    return Session(folder / graph["graph"], saturation_free=exact, restores_weights=restores)


def needed_files(folder: Path, graphs: Graphs) -> set[str]:
    """List the files of a precision, external weights of its graphs included."""
    onnx_files = (name for name in graphs.files if Path(name).suffix == ".onnx")
    return set(graphs.files).union(*(external_files(folder / name) for name in onnx_files))


def write_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write tokenizer.json without truncation, padding and indentation."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()
    plain.save(str(path), pretty=False)  # half of the bytes


def write_labels(folder: Path, labels: Sequence[str]) -> None:
    """Write the labels, one a line, to their file."""
    lines = [" ".join(label.split()) + "\n" for label in labels]
    (folder / LABELS_FILE).write_text("".join(lines), encoding="utf-8")


def first_manifest(task: str, family: str, precisions: Mapping[str, Mapping[str, Any]], **members: Any) -> dict[str, Any]:
    """Compose the manifest of a bundle that has not been measured yet; `members` are those of its task."""
    return {
        "format": FORMAT,
        "task": task,
        "family": family,
        **members,
        "precisions": precisions,
        "default_precision": FP32 if FP32 in precisions else next(iter(precisions)),
        **{member: {} for member in ("provenance", "metrics", "parity")},
    }


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write `bundle.json` with size and SHA-256 of every other file in the folder."""
    files = sorted(path for path in folder.iterdir() if path.name != FILE_NAME)
    manifest["files"] = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in files}
    (folder / FILE_NAME).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
