"""The description of a model: its tensors, batching, and, for models of Triptych, the tensors of each task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.unknown_fields import UnknownFieldSet

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip.datatypes import BYTES
from triptych_bench.target import RequestSpec, TargetError
from triptych_bench.tasks import TASKS

TRANSACTION_POLICY, DECOUPLED = 19, 1  # field numbers in Triton's ModelConfig that these stubs do not have


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model."""

    name: str
    datatype: str
    dims: tuple[int, ...]  # of one input, without the batch dimension; -1 if open
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.datatype} [{', '.join(map(str, self.dims))}]{' optional' if self.optional else ''}"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The facts that requests depend on."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batches: bool  # tensors have a first dimension for several inputs
    most: float  # maximum number of inputs per request
    decoupled: bool = False  # a request may have any number of responses, and needs a stream
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the model's configuration

    @property
    def required(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.inputs if not tensor.optional)

    def input(self, name: str) -> TensorSpec:
        """Look up an input. Raises TargetError if there is none of this name."""
        found = next((tensor for tensor in self.inputs if tensor.name == name), None)
        if found is None:
            raise TargetError(f"the model {self.name} has no input {name!r}; it has {self.listed}")
        return found

    @property
    def listed(self) -> str:
        """The inputs, for messages."""
        return ", ".join(map(str, self.inputs)) or "none"


def facts_of(metadata: pb.ModelMetadataResponse, config: pb.ModelConfig | None) -> ModelFacts:
    """Read the model's metadata and, if the server has one, its configuration.

    Without a configuration, a model batches if all of its inputs begin with an open dimension.
    """
    optional = {one.name for one in config.input if one.optional} if config else set()
    known = [tensor for tensor in metadata.inputs if tensor.name not in optional] or list(metadata.inputs)
    batches = config.max_batch_size > 0 if config else bool(known) and all(list(one.shape[:1]) == [-1] for one in known)
    return ModelFacts(
        name=metadata.name,
        versions=tuple(metadata.versions),
        platform=(config.backend if config else "") or metadata.platform,
        inputs=tuple(_tensor(one, batches, one.name in optional) for one in metadata.inputs),
        outputs=tuple(_tensor(one, batches, False) for one in metadata.outputs),
        batches=batches,
        most=(config.max_batch_size if config else math.inf) if batches else 1,
        decoupled=_is_decoupled(config) if config else False,
        parameters={name: one.string_value for name, one in config.parameters.items()} if config else {},
    )


def sizes(tensor: TensorSpec, given: Sequence[int] | None) -> tuple[int, ...]:
    """Return the shape of one input's tensor.

    Args:
        tensor: As the model describes it.
        given: The user's shape; optional for inputs without open dimensions, and for texts, of which there is one then.

    Raises:
        TargetError: The shape does not fit the model, or sizes of open dimensions are missing.
    """
    if given is None:
        if -1 in tensor.dims and tensor.datatype != BYTES:
            example = ",".join(str(max(size, 1)) for size in tensor.dims)
            raise TargetError(
                f"the input {tensor} has open dimensions: give their sizes, such as --shape {tensor.name}:{example}"
            )
        return tuple(1 if size == -1 else size for size in tensor.dims)
    fits = len(given) == len(tensor.dims) and all(want in (-1, size) for want, size in zip(tensor.dims, given, strict=True))
    if not fits:
        raise TargetError(f"the shape {list(given)} is not that of the input {tensor}")
    return tuple(given)


def _tensor(one: pb.ModelMetadataResponse.TensorMetadata, batches: bool, optional: bool) -> TensorSpec:
    return TensorSpec(one.name, one.datatype, tuple(one.shape[1:] if batches else one.shape), optional)


def _is_decoupled(config: pb.ModelConfig) -> bool:
    """Return whether the configuration has `model_transaction_policy { decoupled: true }`: bytes 8 (field 1, varint) and 1."""
    unknown = UnknownFieldSet(config)
    fields = [unknown[index] for index in range(len(unknown))]
    return any(one.field_number == TRANSACTION_POLICY and one.data == bytes((DECOUPLED << 3, 1)) for one in fields)


RENAMED = {"source_language": "source_language_code", "target_language": "target_language_code"}


@dataclass(frozen=True)
class TaskTensors:
    """The tensors of a task of Triptych, which metadata only show for a model's own task."""

    inputs: tuple[str, ...]
    result: str = ""  # output with the result
    outputs: tuple[str, ...] = ()  # to request; none: all that the server sends


TASK_TENSORS: Mapping[str, TaskTensors] = {
    "translation": TaskTensors(("text",), "translated_text", ("translated_text", "token_count")),
    "text-generation": TaskTensors(("text",), "generated_text", ("generated_text", "token_count")),
    "fill-mask": TaskTensors(("text",), "token_str"),
    "embedding": TaskTensors(("text",), "embedding"),
    "text-classification": TaskTensors(("text", "text_pair"), "label"),
    "token-classification": TaskTensors(("text",), "entities"),
    "question-answering": TaskTensors(("question", "context"), "answer"),
    "image-classification": TaskTensors(("image",), "label"),
}
TOKEN_COUNT, PIECE = "token_count", "piece"
STREAMED = (PIECE, "piece_index")  # outputs that streams have in addition


def task_tensors(facts: ModelFacts, spec: RequestSpec) -> TaskTensors | None:
    """Return the tensors of the task, or None if the model is not Triptych's or the task is "infer".

    Raises:
        TargetError: The model is Triptych's and does not support the task.
    """
    capability = TASKS[spec.task].capability
    tasks = facts.parameters.get("tasks")
    if not capability or tasks is None:
        return None
    if capability not in tasks.split(",") or spec.task == "score":
        raise TargetError(
            f"the model {facts.name} does {tasks}; over the Open Inference Protocol it does not support {spec.task}"
        )
    return TASK_TENSORS[capability]


def parameters(facts: ModelFacts, spec: RequestSpec) -> dict[str, object]:
    """Return the parameters of a request: the options, and the task if it is not the model's own."""
    values = {RENAMED.get(name, name): value for name, value in spec.options.items() if value is not None and value != ""}
    capability = TASKS[spec.task].capability
    if capability and facts.parameters.get("task", capability) != capability:
        values["task"] = capability
    return values
