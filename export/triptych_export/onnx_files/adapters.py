"""Nodes around a foreign encoder graph that give it the inputs and outputs of `graphs.text` and `graphs.image`.

The graph's own nodes and weights are kept as they are; only the names of its values get a prefix. All operators used here mean
the same from opset 11 on, so that the file's own opset is kept. A graph of fixed size gets padded inputs, and its outputs are
cut.

Shapes: `B` rows, `T` positions, `E` model dimensions, `C` classes, `V` tokens, `M` masks of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, compose, helper, numpy_helper
from onnx.helper import make_tensor_value_info as value_info

from triptych_export.errors import SourceError
from triptych_export.onnx_files.checks import graph_inputs, opset_of, replace_fields
from triptych_serving.bundle.manifest import FILL_MASK, QUESTION_ANSWERING, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from triptych_training.checkpoints.encoder import ImagePreprocessing

LEAST_OPSET = 11
NEVER = float("-inf")
PREFIX = "model/"
INT32, INT64, FLOAT, UINT8 = TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.UINT8
# Names under which inputs and outputs of the same meaning are known.
IDS, MASK = ("input_ids", "ids"), ("attention_mask", "input_mask")
SEGMENTS, POSITIONS = ("token_type_ids", "segment_ids"), ("position_ids",)
PIXELS = ("pixel_values", "pixels", "input", "x", "images")
HIDDEN, LOGITS, START, END = ("last_hidden_state", "token_embeddings"), ("logits",), ("start_logits",), ("end_logits",)


@dataclass(frozen=True)
class TextForm:
    """Task and special values of a text graph.

    Args:
        task: as in the manifest.
        pad: id of the padding token.
        width: model dimensions; finds the hidden states among outputs with names of no meaning.
        absent: ids that never fill a mask.
        independent: each label has a probability of its own (sigmoid).
        first_position: number of the first token's position, if the graph takes positions.
    """

    task: str
    pad: int
    width: int
    absent: Sequence[int] = ()
    independent: bool = False
    first_position: int = 0


def fixed_sizes(model: ModelProto) -> tuple[int, int]:
    """Return the rows and positions that a text graph has to be given; 0 where any number will do.

    Raises:
        SourceError: it takes no token ids, or they are no matrix.
    """
    given = _named("input", model.graph.input, IDS)
    sizes = [size.dim_value for size in given.type.tensor_type.shape.dim]
    if len(sizes) != 2:
        raise SourceError(f"input {_plain(given.name)}: {len(sizes)} dimensions, must be rows and tokens")
    return sizes[0], sizes[1]


def text_inputs(model: ModelProto) -> dict[str, str]:
    """Return the meaning of each input: "ids", "mask", "segments" or "positions".

    Raises:
        SourceError: one has no known meaning.
    """
    known = {"ids": IDS, "mask": MASK, "segments": SEGMENTS, "positions": POSITIONS}
    meanings = {one.name: next((m for m, names in known.items() if _plain(one.name) in names), "") for one in model.graph.input}
    for name, meaning in meanings.items():
        if not meaning:
            raise _unknown("input", name, [name for names in known.values() for name in names])
    return meanings


class Nodes:
    """Nodes that are added to a graph under names with a prefix; each call adds one and returns the name of its output."""

    def __init__(self, prefix: str = "adapter") -> None:
        self._prefix = prefix
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def __call__(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"{self._prefix}/{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], f"{self._prefix}/{operator}_{len(self.nodes)}", **attributes)
        )
        return name

    def constant(self, values: Any, kind: Any = np.int64) -> str:
        """Add a constant tensor."""
        name = f"{self._prefix}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def cast(self, value: str, kind: int, out: str = "") -> str:
        """Convert a tensor's type."""
        return self("Cast", value, to=kind, out=out)

    def best(self, scores: str, values: str, indices: str) -> str:
        """Add both outputs of the `k` highest scores; returns the name of the values."""
        self.nodes.append(helper.make_node("TopK", [scores, "k"], [values, indices], f"{self._prefix}/TopK", axis=-1))
        return values

    def cut(self, value: str, ends: str, axes: Sequence[int], out: str = "") -> str:
        """Keep the first `ends` of some dimensions."""
        return self("Slice", value, self.constant([0] * len(axes)), ends, self.constant(axes), out=out)


def adapt_text(model: ModelProto, form: TextForm) -> ModelProto:
    """Give a text encoder the inputs and outputs of `graphs.text`; of pooled vectors only those that it has states for.

    Raises:
        SourceError: an input or output has no known meaning, or one that the task needs is missing.
    """
    graph, n = prefixed(model), Nodes()
    fixed = fixed_sizes(graph)
    outer = n("Shape", "ids")  # [B, T]
    ids, segments, lengths = "ids", "segments", "lengths"
    if any(fixed):
        inner = n("Where", n.constant([bool(size) for size in fixed], np.bool_), n.constant(fixed), outer)
        more = n("Sub", inner, outer)
        pads = n("Concat", n.constant([0, 0]), more, axis=0)
        ids = n("Pad", ids, pads, n.constant(form.pad, np.int32))
        segments = n("Pad", segments, pads, n.constant(0, np.int32))
        rows = n("Gather", more, n.constant([0]))
        lengths = n("Pad", lengths, n("Concat", n.constant([0]), rows, axis=0), n.constant(1, np.int32))
    length = n("Gather", n("Shape", ids), n.constant(1))
    numbers = n("Reshape", n("Range", n.constant(0), length, n.constant(1)), n.constant([1, -1]))  # [1, T]
    counts = n.cast(n("Reshape", lengths, n.constant([-1, 1])), INT64)  # [B, 1]
    inside = n("Less", numbers, counts)  # [B, T]
    meanings = text_inputs(graph)
    sources = {"ids": ids, "mask": inside, "segments": segments}
    if "positions" in meanings.values():
        shifted = n("Add", numbers, n.constant(form.first_position))
        sources["positions"] = n("Expand", shifted, n("Shape", ids))
    for given in graph.graph.input:
        n.cast(sources[meanings[given.name]], given.type.tensor_type.elem_type, out=given.name)
    before = len(n.nodes)
    outputs = _text_outputs(graph, form, n, inside, counts, outer if any(fixed) else "")
    inputs = [
        value_info("ids", INT32, ["B", "T"]),
        value_info("segments", INT32, ["B", "T"]),
        value_info("lengths", INT32, ["B"]),
    ]
    if form.task == FILL_MASK:
        inputs += [value_info("places", INT64, ["M"]), value_info("k", INT64, [1])]
    return _composed(graph, n, before, inputs, outputs)


def states_of(model: ModelProto, width: int) -> str:
    """Return the output with hidden states: by name, or the only one of floats `[B, T, width]`; empty if there is none."""
    outputs = [one for one in model.graph.output if _plain(one.name) in HIDDEN]
    for one in () if outputs else model.graph.output:
        kind = one.type.tensor_type
        sizes = [size.dim_value for size in kind.shape.dim]
        if kind.elem_type in (FLOAT, TensorProto.FLOAT16) and sizes[2:] == [width] and _plain(one.name) not in LOGITS:
            outputs.append(one)
    return outputs[0].name if len(outputs) == 1 else ""


def _text_outputs(graph: ModelProto, form: TextForm, n: Nodes, inside: str, counts: str, outer: str) -> list[ValueInfoProto]:
    """Add the nodes after the graph; `outer` is the shape that outputs of a graph of fixed size are cut to."""
    outputs: list[ValueInfoProto] = []

    def fit(value: str, dims: Sequence[str | int], out: str = "") -> str:
        """Cut a tensor to the rows and positions that were asked for."""
        axes = [axis for axis, size in enumerate(dims) if size in ("B", "T")]
        if not outer:
            return n("Identity", value, out=out)
        return n.cut(value, n.cut(outer, n.constant([len(axes)]), [0]), axes, out=out)

    def give(name: str, value: str, *dims: str | int) -> None:
        fit(value, dims, name)
        outputs.append(value_info(name, FLOAT, dims))

    def read(names: Sequence[str]) -> str:
        return n.cast(_named("output", graph.graph.output, names).name, FLOAT)

    if found := states_of(graph, form.width):
        states, shares = n.cast(found, FLOAT), n("Div", n.cast(inside, FLOAT), n.cast(counts, FLOAT))
        mean = n("MatMul", n("Reshape", shares, n.constant([0, 1, -1])), states)  # [B, 1, E]
        give("mean", n("Reshape", mean, n.constant([0, -1])), "B", form.width)
        give("cls", n("Gather", states, n.constant(0), axis=1), "B", form.width)
    if form.task in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION):
        logits, dims = read(LOGITS), ("B", "C") if form.task == TEXT_CLASSIFICATION else ("B", "T", "C")
        give("probabilities", n("Sigmoid", logits) if form.independent else n("Softmax", logits, axis=-1), *dims)
        if form.task == TEXT_CLASSIFICATION:
            give("logits", logits, *dims)
    elif form.task == QUESTION_ANSWERING:
        for names, name in ((START, "start"), (END, "end")):
            give(name, n("Where", inside, read(names), n.constant(NEVER, np.float32)), "B", "T")
    elif form.task == FILL_MASK:
        logits = fit(read(LOGITS), ("B", "T", "V"))
        size = n("Gather", n("Shape", logits), n.constant([2]))
        flat = n("Reshape", logits, n("Concat", n.constant([-1]), size, axis=0))
        scores = n("LogSoftmax", n("Gather", flat, "places"), axis=-1, out="log_probabilities")
        if form.absent:
            shape = _named("output", graph.graph.output, LOGITS).type.tensor_type.shape
            penalty = np.zeros(shape.dim[2].dim_value, np.float32)
            penalty[list(form.absent)] = NEVER
            scores = n("Add", scores, n.constant(penalty, np.float32))
        n("Exp", n.best(scores, "adapter/best", "tokens"), out="scores")
        kinds = (("scores", FLOAT, "K"), ("tokens", INT64, "K"), ("log_probabilities", FLOAT, "V"))
        outputs += [value_info(name, kind, ["M", last]) for name, kind, last in kinds]
    return outputs


def adapt_image(model: ModelProto, image: ImagePreprocessing) -> ModelProto:
    """Give an image classifier the inputs and outputs of `graphs.image`.

    Raises:
        SourceError: an input or output has no known meaning, or the graph takes images of another size.
    """
    graph, n = prefixed(model), Nodes()
    given = _named("input", graph.graph.input, PIXELS)
    if others := [one.name for one in graph.graph.input if one.name != given.name]:
        raise _unknown("input", others[0], PIXELS)
    sizes = [size.dim_value for size in given.type.tensor_type.shape.dim]  # [B, 3, height, width]
    if len(sizes) != 4 or any(
        size and size != own for size, own in zip(sizes[1:], (3, image.height, image.width), strict=True)
    ):
        raise SourceError(f"input {_plain(given.name)}: shape {sizes}, must fit [rows, 3, {image.height}, {image.width}]")
    if sizes[0]:
        raise SourceError(
            f"input {_plain(given.name)}: takes exactly {sizes[0]} images at once; export it with a free dimension"
        )
    mean, std = (n.constant([[[[255 * one]]] for one in values], np.float32) for values in (image.mean, image.std))
    pixels = n("Transpose", n.cast("pixels", FLOAT), perm=[0, 3, 1, 2])
    shaped = [n("Reshape", one, n.constant([1, 3, 1, 1])) for one in (mean, std)]
    n.cast(n("Div", n("Sub", pixels, shaped[0]), shaped[1]), given.type.tensor_type.elem_type, out=given.name)
    before = len(n.nodes)
    named = [one.name for one in graph.graph.output if _plain(one.name) in LOGITS]
    logits = n.cast(named[0] if named else graph.graph.output[0].name, FLOAT)
    n.best(n("Softmax", logits, axis=-1), "scores", "labels")
    inputs = [value_info("pixels", UINT8, ["B", image.height, image.width, 3]), value_info("k", INT64, [1])]
    return _composed(
        graph, n, before, inputs, [value_info("scores", FLOAT, ["B", "K"]), value_info("labels", INT64, ["B", "K"])]
    )


def prefixed(model: ModelProto, prefix: str = PREFIX) -> ModelProto:
    """Copy a model, give all values a prefix, and list only what a caller gives among the inputs.

    Raises:
        SourceError: the opset is too old.
    """
    if (opset := opset_of(model)) < LEAST_OPSET:
        raise SourceError(f"opset {opset}, at least {LEAST_OPSET} is needed; convert it with onnx.version_converter")
    copy = compose.add_prefix(model, prefix, rename_nodes=False, rename_functions=False)
    replace_fields(copy.graph, input=graph_inputs(copy))
    return copy


def _composed(
    graph: ModelProto, n: Nodes, before: int, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]
) -> ModelProto:
    body = graph.graph
    replace_fields(body, node=[*n.nodes[:before], *body.node, *n.nodes[before:]], input=inputs, output=outputs)
    body.initializer.extend(n.constants)
    return graph


def _named(kind: str, values: Sequence[ValueInfoProto], names: Sequence[str]) -> ValueInfoProto:
    for one in values:
        if _plain(one.name) in names:
            return one
    raise SourceError(f"no {kind} is named {' or '.join(names)}; there are: {', '.join(_plain(one.name) for one in values)}")


def _plain(name: str) -> str:
    return name.removeprefix(PREFIX)


def _unknown(kind: str, name: str, known: Sequence[str]) -> SourceError:
    return SourceError(f"{kind} {_plain(name)!r:.60} has no known meaning; known: {', '.join(known)}")
