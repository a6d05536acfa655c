"""A folder with a page that runs a bundle's model in the browser, on onnxruntime-web."""

import json
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tokenizers import Tokenizer

from triptych_export.errors import SourceError
from triptych_export.onnx_files.checks import replace_fields
from triptych_serving.bundle.bundle import Bundle, open_bundle, read_labels
from triptych_serving.bundle.manifest import FILE_NAME, FILL_MASK, ImageManifest, TextManifest, TranslationManifest
from triptych_serving.bundle.manifest.image import LABELS_FILE, STRETCH, ImageSpec
from triptych_serving.bundle.manifest.translation import TOKENIZER_FILE
from triptych_serving.runtime.external_data import external_files

PACKAGES = {"onnxruntime-web": "^1.30.0", "@huggingface/tokenizers": "^0.2.0"}
PRECISIONS = ("int8", "fp32")  # the first of them that a bundle has


def export_web(folder: Path, out: Path) -> None:
    """Write the page, and a bundle's model in a form that onnxruntime-web runs, to the new or empty folder `out`.

    Raises:
        SourceError: the folder is no bundle, the model is of a kind that the page does not run, or `out` has files.
        BundleError: the bundle is damaged.
    """
    if not (folder / FILE_NAME).is_file():
        raise SourceError(f"{folder}: no bundle; export the checkpoint first, then REPOSITORY/NAME/VERSION with --for web")
    if out.exists() and any(out.iterdir()):
        raise SourceError(f"{out}: not empty; choose a new folder")
    bundle = open_bundle(folder)
    if isinstance(bundle.manifest, TranslationManifest) and bundle.manifest.decoder.state_vectors:
        raise SourceError(f"{folder}: a recurrent model; the page runs Transformers only")
    precision = next((one for one in PRECISIONS if one in bundle.manifest.precisions), "")
    if not precision:
        raise SourceError(f"precision: {folder} has none of {', '.join(PRECISIONS)}; export it with --precision int8")
    settings = _settings(bundle, precision)
    target = out / "model"
    target.mkdir(parents=True)
    for name, file in settings["graphs"].items():
        model = onnx.load(str(bundle.path(file)), load_external_data=False)
        if name == "step":
            replace_cross_attention(model)
        defaults = {one.name for one in model.graph.initializer}  # of optional inputs, which the page does not give
        replace_fields(model.graph, input=[one for one in model.graph.input if one.name not in defaults])
        onnx.save(model, str(target / file))
    for file in {*settings["weights"], *settings.get("tokenizers", ())}:
        shutil.copyfile(bundle.path(file), target / file)
    (target / "model.json").write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
    package = {"private": True, "type": "module", "dependencies": PACKAGES}
    (out / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
    with as_file(files("triptych_export") / "web") as pages:
        shutil.copytree(pages, out, dirs_exist_ok=True)


def _settings(bundle: Bundle, precision: str) -> dict[str, Any]:
    """Return what the page has to know of a model."""
    manifest = bundle.manifest
    common = {"name": bundle.folder.parent.name, "task": manifest.task}
    if isinstance(manifest, TranslationManifest) and not manifest.frames.sources and not manifest.frames.targets:
        graphs = manifest.precisions[precision]
        return {
            **common,
            **_graphs(bundle, encoder=graphs.encoder, step=graphs.step),
            "tokenizers": manifest.tokenizers,
            "language": manifest.source_languages[0].replace("_", "-") if manifest.splits else "",  # as browsers write it
            "lowers_capitals": manifest.lowers_capitals,
            "layers": manifest.decoder.layers,
            "heads": manifest.decoder.heads,
            "head_dim": manifest.decoder.head_dim,
            "start": manifest.tokens.start,
            "end": manifest.tokens.end,
            "most_source": manifest.limits.max_source_tokens,
            "most_target": manifest.limits.max_target_tokens,
            "max_length": manifest.generation.max_length,
        }
    if isinstance(manifest, TextManifest) and manifest.task == FILL_MASK:
        mask = Tokenizer.from_file(str(bundle.path(TOKENIZER_FILE))).id_to_token(manifest.tokens.mask)
        tokens = {"mask": manifest.tokens.mask, "mask_token": mask, "most_tokens": manifest.limits.max_tokens}
        graphs_of = _graphs(bundle, graph=manifest.precisions[precision].graph)
        return {**common, **graphs_of, "tokenizers": [TOKENIZER_FILE], **tokens}
    if isinstance(manifest, ImageManifest):
        graphs_of = _graphs(bundle, graph=manifest.precisions[precision].graph)
        return {**common, **graphs_of, "labels": read_labels(bundle.path(LABELS_FILE)), **image_settings(manifest.image)}
    raise SourceError(
        f"{bundle.folder}: the page runs translation with one language pair, fill-mask and image classification, not this model"
    )


def image_settings(image: ImageSpec) -> dict[str, Any]:
    """Return how the page scales pictures: to `stretched`, or the shorter side to `shortest_edge` if that is None."""
    stretched = image.stretched if image.resize == STRETCH else None
    sizes = {"height": image.height, "width": image.width, "stretched": stretched, "shortest_edge": image.resize_size}
    return {**sizes, "interpolation": image.interpolation, "round_crop": image.round_crop}


def _graphs(bundle: Bundle, **graphs: str) -> dict[str, Any]:
    """Return the graphs' files, and those of their weights."""
    weights = {file for graph in graphs.values() for file in external_files(bundle.path(graph))}
    return {"graphs": graphs, "weights": sorted(weights)}


def replace_cross_attention(model: onnx.ModelProto) -> None:
    """Write the attention over the source in plain operators, for one row without padding; the input `last` is dropped.

    onnxruntime-web 1.30 returns NaN for GroupQueryAttention over a cache without new keys whose present outputs are left out.
    """
    graph = model.graph
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in graph.input}
    nodes = []
    for node in graph.node:
        if node.op_type == "GroupQueryAttention" and node.input[3].startswith("memory_"):
            nodes += _plain_attention(graph, node, *shapes[node.input[3]][1::2])
        else:
            nodes.append(node)
    replace_fields(graph, node=nodes)
    replace_fields(graph, input=[one for one in graph.input if one.name != "last"])
    for one in graph.input:
        if one.name.startswith("memory_"):
            one.type.tensor_type.shape.dim[2].dim_param = "source_length"


def _plain_attention(graph: onnx.GraphProto, node: onnx.NodeProto, heads: int, width: int) -> list[onnx.NodeProto]:
    """Return nodes for softmax(K q) V of one query; the scale is part of the weights that make q."""
    query, _, _, keys, values = node.input[:5]
    [result] = node.output
    shapes = {"column": [0, heads, width, 1], "row": [0, heads, 1, -1], "joined": [0, 1, heads * width]}
    for name, shape in shapes.items():
        graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), f"{result}_{name}"))
    return [
        helper.make_node("Reshape", [query, f"{result}_column"], [f"{result}_query"]),
        helper.make_node("MatMul", [keys, f"{result}_query"], [f"{result}_scores"]),
        helper.make_node("Softmax", [f"{result}_scores"], [f"{result}_weights"], axis=2),
        helper.make_node("Reshape", [f"{result}_weights", f"{result}_row"], [f"{result}_weights_row"]),
        helper.make_node("MatMul", [f"{result}_weights_row", values], [f"{result}_heads"]),
        helper.make_node("Reshape", [f"{result}_heads", f"{result}_joined"], [result]),
    ]
