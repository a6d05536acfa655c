"""Bundles whose graphs fail in the runtime for one token: real errors of ONNX Runtime in the middle of a batch."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tokenizers import Tokenizer

from ..fixtures.encoders import ID, VOCABULARY, sign, write_text_bundle
from ..fixtures.toy import BUNDLE, copy_bundle

BEYOND = 1_000_000  # no table has so many rows


def poison_translator(repository: Path, graph: str, index: str, token: int) -> Path:
    """A copy of the toy translation model.

    Args:
        repository: gets the bundle, as model `toy`.
        graph: `encoder` or `step`.
        index: the value in it that looks tokens up in the embedding.
        token: the graph fails for a row that has it, whatever else it has.
    """
    folder = copy_bundle(repository)
    path = folder / f"{graph}.fp32.onnx"
    model = onnx.load(path, load_external_data=False)
    table = np.arange(toy_tokenizer().get_vocab_size())
    table[token] = BEYOND
    _look_up(model.graph, index, table)
    path.write_bytes(model.SerializeToString())
    sign(folder)
    return folder


def toy_tokenizer() -> Tokenizer:
    """Of the toy translation model, for both languages."""
    return Tokenizer.from_file(str(BUNDLE / "tokenizer.json"))


def poison_classifier(repository: Path, word: str) -> Path:
    """A toy model that finds entities, and fails for a text with `word`."""
    folder = write_text_bundle(repository, "token-classification")
    path = folder / "model.fp32.onnx"
    model = onnx.load(path)
    table = np.arange(len(VOCABULARY), dtype=np.int32)
    table[ID[word]] = BEYOND
    _look_up(model.graph, "ids", table)
    path.write_bytes(model.SerializeToString())
    sign(folder)
    return folder


def _look_up(graph: onnx.GraphProto, index: str, table: np.ndarray) -> None:
    """What was looked up with `index` is looked up with `table[index]`, which may be beyond the end."""
    graph.initializer.append(numpy_helper.from_array(table, "poison_table"))
    readers = [node for node in graph.node if node.op_type == "Gather" and node.input[1] == index]
    assert readers, f"nothing looks {index} up"
    for node in readers:
        node.input[1] = "poisoned"
    place = list(graph.node).index(readers[0])
    graph.node.insert(place, helper.make_node("Gather", ["poison_table", index], ["poisoned"], "look_up"))
