"""The description of a task in this protocol: inputs, parameters, outputs, and the function that runs it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triptych_serving.errors import InvalidInputError
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.services.decode_calls import DecodeCalls, DecodeEvent
from triptych_serving.services.image_calls import ImageCalls, LatentCalls
from triptych_serving.services.oip.parameters import FLAG, ParameterTypes
from triptych_serving.services.oip.tensors import InputSpec, InputTensors
from triptych_serving.services.text_calls import TextCalls
from triptych_serving.services.translation_calls import TranslationCalls


@dataclass(frozen=True)
class TaskCalls:
    """The calls that run tasks for every protocol."""

    translations: TranslationCalls
    texts: TextCalls
    images: ImageCalls
    latents: LatentCalls
    generations: DecodeCalls
    response_bytes: int  # maximum size of a response


@dataclass(frozen=True)
class OutputTensor:
    """An output tensor of a task."""

    name: str
    datatype: str
    read: Callable[[Any], Any]  # one element of it, from the result of one text or image; nested as deep as `sizes`
    sizes: tuple[int, ...] = ()  # of the dimensions after the first; -1: variable. Empty: one value per element
    weight: Callable[[Any], int] = lambda _: 20  # of the result of one text or image: characters, roughly
    # For requests that name no outputs: the parameter that requests this one. Empty: it is always sent; None: never.
    requested_by: str | None = ""


@dataclass(frozen=True)
class InferQuery:
    """A request whose tensors and parameters have been converted."""

    id: str
    model: str
    version: str
    task: "InferTask"
    inputs: InputTensors
    values: Mapping[str, Any]  # of its parameters
    outputs: Sequence[OutputTensor]  # to send

    def selector(self, **languages: str) -> ModelSelector:
        """Select the model, for a translation with languages."""
        return ModelSelector(self.model, self.version, **languages)

    @property
    def options(self) -> dict[str, Any]:
        """The parameters, with the flags that request the outputs to send."""
        flags = {name: True for output in self.outputs if self.task.parameters.get(name := output.requested_by or "") is FLAG}
        return {**self.values, **flags}


TaskResults = list[Any]  # one for each text or image
RunTask = Callable[[TaskCalls, InferQuery, GrpcContext], Awaitable[tuple[TaskResults, ModelUse]]]


@dataclass(frozen=True)
class InferTask:
    """One task."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputTensor, ...]
    run: RunTask
    parameters: ParameterTypes = field(default_factory=dict)
    stream: Callable[[TaskCalls, InferQuery, GrpcContext], AsyncGenerator[DecodeEvent]] | None = None
    pieces: tuple[OutputTensor, ...] = ()  # outputs of a stream only

    def select(self, names: Sequence[str], given: Mapping[str, Any], streams: bool = False) -> list[OutputTensor]:
        """Return the outputs to send, in the order of `names`.

        Args:
            names: outputs that the request names; if empty, the default ones are sent.
            streams: the request came on a stream.

        Raises:
            InvalidInputError: an output is unknown.
        """
        known = {output.name: output for output in (*self.outputs, *(self.pieces if streams else ()))}
        if not names:
            return [one for one in known.values() if one.requested_by == "" or given.get(one.requested_by or "")]
        for index, name in enumerate(names):
            if name not in known:
                raise InvalidInputError(f"outputs[{index}].name", self._unknown(name, known))
        return [known[name] for name in names]

    def _unknown(self, name: str, known: Mapping[str, OutputTensor]) -> str:
        if any(name == piece.name for piece in self.pieces):
            return f"{name!r} is only available with ModelStreamInfer"
        return f"there is no output {name!r}; there are: {', '.join(known)}"
