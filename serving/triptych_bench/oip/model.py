"""What a server says of a model: tensors, whether it batches, whether one request has several responses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.unknown_fields import UnknownFieldSet

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip.datatypes import BYTES
from triptych_bench.target import TargetError

TRANSACTION_POLICY, DECOUPLED = 19, 1  # of Triton's ModelConfig, in fields that the stubs here do not have


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    datatype: str
    dims: tuple[int, ...]  # of one input, without the batch's; -1 where open
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.datatype} [{', '.join(map(str, self.dims))}]{' optional' if self.optional else ''}"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """One model of a server."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batches: bool  # tensors have a dimension more, the first, for several inputs
    most: float  # inputs in a request
    decoupled: bool = False  # a request may have any number of responses, so that it needs a stream
    parameters: Mapping[str, str] = field(default_factory=dict)  # of its configuration

    @property
    def required(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.inputs if not tensor.optional)

    @property
    def texts(self) -> tuple[Tensor, ...]:
        """Inputs that take texts or files."""
        return tuple(tensor for tensor in self.inputs if tensor.datatype == BYTES)

    def input(self, name: str) -> Tensor:
        """Raises TargetError: it has no such input."""
        found = next((tensor for tensor in self.inputs if tensor.name == name), None)
        if found is None:
            raise TargetError(f"the model {self.name} has no input {name!r}; it has {self.listed}")
        return found

    @property
    def listed(self) -> str:
        """Its inputs, for people."""
        return ", ".join(map(str, self.inputs)) or "none"


def facts_of(metadata: pb.ModelMetadataResponse, config: pb.ModelConfig | None) -> ModelFacts:
    """From the model's metadata and, where the server has such a thing, its configuration.

    Without one, a model whose inputs all begin with an open dimension is taken to batch.
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


def sizes(tensor: Tensor, given: Sequence[int] | None) -> tuple[int, ...]:
    """The shape of one input's tensor.

    Args:
        given: by the user; may be left out where the model says all, and of texts, of which there is one then.

    Raises:
        TargetError: it is not what the model takes, or open dimensions are left open.
    """
    if given is None:
        if -1 in tensor.dims and tensor.datatype != BYTES:
            example = ",".join(str(max(size, 1)) for size in tensor.dims)
            raise TargetError(
                f"the input {tensor} has open dimensions: say their sizes, such as --shape {tensor.name}:{example}"
            )
        return tuple(1 if size == -1 else size for size in tensor.dims)
    fits = len(given) == len(tensor.dims) and all(want in (-1, size) for want, size in zip(tensor.dims, given, strict=True))
    if not fits:
        raise TargetError(f"the shape {list(given)} is not that of the input {tensor}")
    return tuple(given)


def _tensor(one: pb.ModelMetadataResponse.TensorMetadata, batches: bool, optional: bool) -> Tensor:
    return Tensor(one.name, one.datatype, tuple(one.shape[1:] if batches else one.shape), optional)


def _is_decoupled(config: pb.ModelConfig) -> bool:
    """`model_transaction_policy { decoupled: true }`; the message is tag 8 (field 1, varint) and 1."""
    unknown = UnknownFieldSet(config)
    fields = [unknown[index] for index in range(len(unknown))]
    return any(one.field_number == TRANSACTION_POLICY and one.data == bytes((DECOUPLED << 3, 1)) for one in fields)
