"""ONNX files of generative models of unknown architectures, as networks beside our own."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, helper
from torch import Tensor, nn

from triptych_export.errors import SourceError
from triptych_export.onnx_files.adapters import IDS, MASK, POSITIONS
from triptych_export.onnx_files.checks import graph_inputs, keep_needed, read_model, replace_fields
from triptych_export.onnx_files.layout import OnnxFile, precision_of
from triptych_export.onnx_files.trial import Arrays, try_run
from triptych_serving.runtime.session import Session
from triptych_training.models.gpt import GptConfig
from triptych_training.models.rnn import TranslationModel
from triptych_training.models.transformer import TransformerConfig

DOMAIN, OPERATOR = "triptych", "Decoder"
PAST, PRESENT, BRANCH, LOGITS = "past_key_values", "present", "use_cache_branch", "logits"
STATES, SOURCE_MASK, ENCODED = "encoder_hidden_states", "encoder_attention_mask", "last_hidden_state"
OWN, CROSS = "decoder.", "encoder."  # in the names of an encoder-decoder's keys and values, before the kind
PAST_NAME = re.compile(rf"{PAST}\.\d+\.({OWN}|{CROSS})?(key|value)")
WITH_PAST = "decoder_with_past_model.onnx"


class Logits(nn.Module):
    """Stand-in for the output projection of a decoder that computes logits itself; `bias` is added to them."""

    def __init__(self, count: int, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.bias = count, bias

    def forward(self, logits: Tensor) -> Tensor:
        """Return logits `[B, V]`."""
        return logits if self.bias is None else logits + self.bias


class OnnxDecoder(nn.Module):
    """A decoder's file, which is traced as one operator; `graphs.onnx_decoder` replaces that by the nodes.

    Args:
        path: a file with inputs for keys and values; in a merged one, the branch that reads them is used.
        sides: parts of the names of keys and values: OWN and CROSS of encoder-decoders, else empty.
        head_dim: size of keys and values, where the file does not declare it, such as files of ONNX Runtime GenAI; 0: unknown.

    Raises:
        SourceError: the file is damaged, or has inputs or outputs of no known meaning.
    """

    count: int  # of tokens

    def __init__(self, path: Path, sides: Sequence[str] = ("",), head_dim: int = 0) -> None:
        super().__init__()
        self.file = OnnxFile(path, read_model(path))
        for one in self.file.model.graph.input:
            sizes = one.type.tensor_type.shape.dim
            if head_dim and PAST_NAME.fullmatch(one.name) and len(sizes) == 4 and not sizes[3].dim_value:
                sizes[3].dim_value = head_dim
        self.precision = precision_of(self.file.model)
        graph, self.side = branch_of(self.file.model, with_past=True), sides[0]
        self.layers, self.heads, self.head_dim = _cache_shape(path, graph, sides)
        self.graph = pruned(graph, path, [LOGITS, *cache_values(self.layers, PRESENT, sides[0])])
        self._sessions: dict[Path, Session] | None = None  # None: each run has a process of its own, as each file's first one

    def trace(
        self, tokens: Tensor, starts: Tensor, cache: Sequence[Tensor], source: Sequence[Tensor] = (), attends: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Add the operator: logits `[B, S, V]`, the caches with the tokens' keys and values, and attention `[B, 1, S]`.

        Args:
            tokens: `[B, S]` int64.
            starts: `[B]` int32, position of each row's first token.
            cache: keys and values of every layer.
            source: of encoder-decoders: cross-attention keys and values, and the index of each row's last source position.
            attends: return the attention to the source.
        """
        shapes = [(*tokens.shape, self.count), *(each.shape for each in cache)]
        if attends:
            shapes.append((tokens.shape[0], 1, source[0].shape[2]))
        inputs = (tokens, starts, *cache, *source)
        kinds = [torch.float32] * len(shapes)
        logits, *others = torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{OPERATOR}", inputs, dtypes=kinds, shapes=shapes, version=1
        )
        return logits, list(others)

    def _run(self, file: OnnxFile, ids: Sequence[int], more: Arrays | None = None) -> Arrays:
        """Run one of the files on one text; arguments as for `decoder_inputs`."""
        inputs = decoder_inputs(file.model, ids, more)
        if self._sessions is None:
            return try_run(file.path, [inputs], file.bytes)[0]
        if file.path not in self._sessions:
            self._sessions[file.path] = Session(file.path)
        session = self._sessions[file.path]
        return dict(zip(session.outputs, session.run(inputs), strict=True))


class OnnxGpt(OnnxDecoder):
    """A decoder-only file as a network: ONNX Runtime computes its logits.

    Args:
        path: the file.
        positions: longest text.
        head_dim: as for OnnxDecoder.

    Raises:
        SourceError: as OnnxDecoder; or the file does not run.
    """

    def __init__(self, path: Path, positions: int, head_dim: int = 0) -> None:
        super().__init__(path, head_dim=head_dim)
        self.count, heads, size = self._run(self.file, [0])[LOGITS].shape[-1], self.heads, self.head_dim
        self._sessions = {}
        self.config = GptConfig(self.count, heads * size, heads, head_dim=size, layers=self.layers, max_positions=positions)
        self.projection = Logits(self.count)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute logits `[1, S, V]` after each token of one row."""
        return torch.from_numpy(self._run(self.file, ids[0].tolist())[LOGITS]).float()


class OnnxSeq2Seq(OnnxDecoder):
    """The files of an encoder-decoder as a network: ONNX Runtime runs them.

    Args:
        files: the decoder's file, merged or beside one for texts with a past, and the encoder's.
        positions: longest source or target.
        tokens: ids of the padding, the decoder's first input, and the end.

    Raises:
        SourceError: as OnnxGpt.
        ValueError: an id is out of range; the message names it.
    """

    def __init__(self, files: Sequence[Path], positions: int, tokens: tuple[int, int, int]) -> None:
        first, encoder = files
        following = first.with_name(WITH_PAST)
        super().__init__(following if following.is_file() else first, (OWN, CROSS))
        self.first, self.encoder = (OnnxFile(path, read_model(path)) for path in (first, encoder))
        memory = cache_values(self.layers, PRESENT, CROSS)
        self.projecting = pruned(branch_of(self.first.model, with_past=False), first, memory)
        self._start, self._end = tokens[1:]
        self.translate([self._end], 1, [self._start])
        self._sessions = {}
        pad, start, end = tokens
        sizes = TransformerConfig(self.count, self.heads * self.head_dim, self.heads, decoder_layers=self.layers)
        self.config = replace(sizes, max_positions=positions, pad_id=pad, bos_id=start, eos_id=end)
        self.projection = Logits(self.count)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits `[1, T, V]` after each token of one target, whose first is the decoder's first input."""
        outputs = self._run(self.first, target[0].tolist(), self._encode(source[0].tolist()))
        return torch.from_numpy(outputs[LOGITS]).float()

    def translate(
        self, source: Sequence[int], longest: int, prefix: Sequence[int] = (), suppressed: Sequence[int] = ()
    ) -> list[int]:
        """Translate one source greedily, with keys and values as Optimum passes them; as `greedy` does with our own models."""
        encoded, answer = self._encode(source), list[int]()
        outputs = self._run(self.first, [self._start], encoded)
        self.count = outputs[LOGITS].shape[-1]
        past = {name.replace(PRESENT, PAST): values for name, values in outputs.items()}
        for place in range(longest):
            logits = outputs[LOGITS][0, -1].astype(np.float32)
            logits[list(suppressed)] = -np.inf
            token = prefix[place] if place < len(prefix) else int(logits.argmax())
            if token == self._end and place >= len(prefix):
                break
            answer.append(token)
            outputs = self._run(self.file, [token], {**encoded, **past, BRANCH: np.array([True])})
            past |= {name: outputs[name.replace(PAST, PRESENT)] for name in cache_values(self.layers, PAST, OWN)}
        return answer

    def _encode(self, source: Sequence[int]) -> Arrays:
        """Return the decoder's inputs about a source."""
        outputs = self._run(self.encoder, source)
        return {STATES: outputs[ENCODED], SOURCE_MASK: np.ones((1, len(source)), np.int64)}


Seq2Seq = TranslationModel | OnnxSeq2Seq


def decoder_inputs(model: ModelProto, ids: Sequence[int], more: Arrays | None = None) -> Arrays:
    """Make the inputs of one of Optimum's files for one text; those that `more` lacks with an empty past."""
    tokens = np.array([ids])
    numbered = {IDS[0]: tokens, MASK[0]: np.ones_like(tokens), POSITIONS[0]: np.arange(tokens.size)[None]}
    values = {**numbered, BRANCH: np.array([False]), **(more or {})}
    return {given.name: values.get(given.name, _past(given)) for given in graph_inputs(model)}


def _past(given: ValueInfoProto) -> NDArray[Any]:
    """Make an empty past, of one row."""
    kind = given.type.tensor_type
    first, *sizes = (size.dim_value for size in kind.shape.dim)
    return np.zeros([first or 1, *sizes], helper.tensor_dtype_to_np_dtype(kind.elem_type))


def cache_values(layers: int, prefix: str, side: str) -> list[str]:
    """Name the keys and values of all layers, in the order of our caches."""
    return [f"{prefix}.{layer}.{side}{kind}" for layer in range(layers) for kind in ("key", "value")]


def _cache_shape(path: Path, model: ModelProto, sides: Sequence[str]) -> tuple[int, int, int]:
    """Return layers, heads and their size.

    Raises:
        SourceError: an input has no known meaning, or there are no keys and values `[rows, heads, positions, size]`.
    """
    sizes, known = {}, {IDS[0], *((MASK[0], POSITIONS[0]) if sides == ("",) else (SOURCE_MASK, STATES))}
    for one in model.graph.input:
        if PAST_NAME.fullmatch(one.name):
            sizes[one.name] = [size.dim_value for size in one.type.tensor_type.shape.dim]
        elif one.name not in known:
            raise SourceError(
                f"{path}: input {one.name!r:.60} has no known meaning; known: {', '.join(sorted(known))}, {PAST}.N.key, .value"
            )
    shapes = {(size[1], size[3]) for size in sizes.values() if len(size) == 4}
    layers = len(sizes) // (2 * len(sides))
    names = {name for side in sides for name in cache_values(layers, PAST, side)}
    if set(sizes) != names or len(shapes) != 1 or not all(min(shapes)) or not layers:
        kinds = " and ".join(f"{PAST}.N.{side}key, .value" for side in sides)
        wanted = f"{kinds} [rows, heads, positions, size], heads and size fixed and alike in all layers"
        raise SourceError(
            f"{path}: needs inputs {wanted}; there are: {', '.join(f'{n} {s}' for n, s in sizes.items()) or 'none'}"
        )
    return layers, *shapes.pop()


def branch_of(model: ModelProto, with_past: bool) -> ModelProto:
    """Copy a model's structure; of a merged one only the branch for texts with or without a past."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    inputs = [one for one in graph_inputs(model) if one.name != BRANCH]
    nodes = []
    for node in model.graph.node:
        if node.op_type != "If" or node.input[0] != BRANCH:
            nodes.append(node)
            continue
        name = "then_branch" if with_past else "else_branch"
        [branch] = [attribute.g for attribute in node.attribute if attribute.name == name]
        nodes += branch.node
        graph.initializer.extend(branch.initializer)
        names = zip(branch.output, node.output, strict=True)
        nodes += [helper.make_node("Identity", [inner.name], [outer]) for inner, outer in names if inner.name != outer]
    replace_fields(graph, node=nodes, input=inputs)
    return copy


def pruned(model: ModelProto, path: Path, outputs: Sequence[str]) -> ModelProto:
    """Keep only some outputs of a model, and the nodes, inputs and weights that these need.

    Raises:
        SourceError: the file `path`, from which it is, lacks an output.
    """
    names = {one.name for one in model.graph.output}
    if missing := set(outputs) - names:
        raise SourceError(f"{path}: no output {min(missing)}; there are: {', '.join(sorted(names))}")
    keep_needed(model.graph, outputs)
    return model
