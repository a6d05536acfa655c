"""Toy bundles with a special behaviour: a runtime error for one token, or versions that differ in their results."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tokenizers import Tokenizer

from ...fixtures.encoders import CLASSES, ID, VOCABULARY, sign, write_text_bundle
from ...fixtures.toy import BUNDLE, copy_bundle, edit_manifest, tamper

CLASSIFIER, TRANSLATOR = "classifier", "translator"
LONG, SHORT = 63, 3  # tokens of a translation
HOLES_BYTES = 1 << 40
BEYOND = 1_000_000  # more rows than any table has


def poison_translator(repository: Path, graph: str, index: str, token: int) -> Path:
    """Copy the toy translation model and make its graph fail for one token.

    Args:
        repository: folder for the bundle, as a model with the name of the graph.
        graph: `encoder` or `step`.
        index: value in the graph that indexes the embedding.
        token: the graph fails for rows that contain it.
    """
    folder = copy_bundle(repository, graph)
    path = folder / f"{graph}.fp32.onnx"
    model = onnx.load(path, load_external_data=False)
    table = np.arange(toy_tokenizer().get_vocab_size())
    table[token] = BEYOND
    _look_up(model.graph, index, table)
    path.write_bytes(model.SerializeToString())
    sign(folder)
    return folder


def toy_tokenizer() -> Tokenizer:
    """Load the tokenizer of the toy translation model."""
    return Tokenizer.from_file(str(BUNDLE / "tokenizer.json"))


def poison_classifier(repository: Path) -> Path:
    """Write a token classifier that fails for texts with `seven`."""
    folder = write_text_bundle(repository, "token-classification")
    path = folder / "model.fp32.onnx"
    model = onnx.load(path)
    table = np.arange(len(VOCABULARY), dtype=np.int32)
    table[ID["seven"]] = BEYOND
    _look_up(model.graph, "ids", table)
    path.write_bytes(model.SerializeToString())
    sign(folder)
    return folder


def _look_up(graph: onnx.GraphProto, index: str, table: np.ndarray) -> None:
    """Replace lookups of `index` by lookups of `table[index]`, which may be out of range."""
    graph.initializer.append(numpy_helper.from_array(table, "poison_table"))
    readers = [node for node in graph.node if node.op_type == "Gather" and node.input[1] == index]
    assert readers, f"no lookup of {index}"
    for node in readers:
        node.input[1] = "poisoned"
    place = list(graph.node).index(readers[0])
    graph.node.insert(place, helper.make_node("Gather", ["poison_table", index], ["poisoned"], "look_up"))


def label(version: int) -> str:
    """Return the label of a one-word text in this version of the classifier."""
    return f"{CLASSES[0]} {version}"


def length(version: int) -> int:
    """Return the maximum number of tokens of translations in this version."""
    return LONG if version % 2 else SHORT


def add_classifier(repository: Path, version: int, damaged: bool = False, endless: bool = False) -> Path:
    """Add a classifier to the repository in one step; its labels tell the version.

    Args:
        repository: target folder.
        version: model version.
        damaged: write a bundle that cannot be loaded.
        endless: write a bundle that loads longer than any test runs.
    """
    with tempfile.TemporaryDirectory(dir=repository.parent) as folder:
        bundle = write_text_bundle(Path(folder), "text-classification", labels=[f"{name} {version}" for name in CLASSES])
        if damaged:
            tamper(bundle / "tokenizer.json")
        if endless:
            _swell(bundle)
        return _move(bundle, repository / CLASSIFIER, version)


def add_translator(repository: Path, version: int) -> Path:
    """Add a translator to the repository in one step; even versions truncate their translations."""
    with tempfile.TemporaryDirectory(dir=repository.parent) as folder:
        bundle = copy_bundle(Path(folder))
        edit_manifest(bundle, lambda manifest: manifest["generation"].update(max_length=length(version)))
        return _move(bundle, repository / TRANSLATOR, version)


def _move(bundle: Path, model: Path, version: int) -> Path:
    model.mkdir(exist_ok=True)
    return Path(shutil.move(bundle, model / str(version)))


def _swell(bundle: Path) -> None:
    """Add a sparse file to the manifest: it needs no disk space, but minutes to check."""
    with open(bundle / "holes.bin", "wb") as file:
        file.truncate(HOLES_BYTES)
    stored = {"holes.bin": {"sha256": "0" * 64, "bytes": HOLES_BYTES}}
    edit_manifest(bundle, lambda manifest: manifest["files"].update(stored))
