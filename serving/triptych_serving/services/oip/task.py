"""What the protocol's requests can have done: tensors, parameters, and how the task is asked."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triptych_serving.errors import InvalidInputError
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.services.image_calls import ImageCalls
from triptych_serving.services.oip.inputs import Inputs
from triptych_serving.services.oip.parameters import Parameters
from triptych_serving.services.oip.tensors import BYTES, FP32, UINT32, TensorInput
from triptych_serving.services.text_calls import TextCalls
from triptych_serving.services.translation_calls import TextPiece, TranslationCalls, TranslationResult


@dataclass(frozen=True)
class Calls:
    """What does the work, whatever protocol it came in."""

    translations: TranslationCalls
    texts: TextCalls
    images: ImageCalls


@dataclass(frozen=True)
class Question:
    """A request, checked as far as the protocol goes."""

    model: str
    version: str
    inputs: Inputs
    values: Mapping[str, Any]  # of the parameters that it has
    wanted: Sequence["Output"]

    def wish(self, **languages: str) -> ModelSelector:
        """For the model, whose languages may have to be named."""
        return ModelSelector(self.model, self.version, **languages)

    def wants(self, output: str) -> bool:
        """Whether the response shall have it."""
        return any(one.name == output for one in self.wanted)


@dataclass(frozen=True)
class Output:
    """A tensor that a response may have."""

    name: str
    datatype: str
    read: Callable[[Any], Any]  # one text's or image's part, of its result; nested as deep as `sizes`
    sizes: tuple[int, ...] = ()  # of the dimensions behind the first; -1: it depends. None: one value each
    weight: int = 20  # characters of one part, roughly
    # Where a request names no outputs: the parameter that brings this one. Empty: it comes anyway; None: it does not.
    asked_by: str | None = ""


Results = Sequence[Any]  # one for each text or image
Events = AsyncGenerator[TextPiece | TranslationResult | ModelUse]


@dataclass(frozen=True)
class Task:
    """One of the things that models can."""

    inputs: tuple[TensorInput, ...]
    outputs: tuple[Output, ...]
    answer: Callable[[Calls, Question, GrpcContext], Awaitable[Results]]
    parameters: Parameters = field(default_factory=dict)
    stream: Callable[[Calls, Question, GrpcContext], Events] | None = None  # where there are pieces
    pieces: tuple[Output, ...] = ()  # of a stream alone

    def wanted(self, names: Sequence[str], given: Mapping[str, Any], streams: bool = False) -> list[Output]:
        """The outputs of these names, in their order; where there are no names, those that come unasked.

        Args:
            names: that a request has.
            given: its parameters.
            streams: it came on a stream.

        Raises:
            InvalidInputError: there is no such output, or it is named twice.
        """
        there = {output.name: output for output in (*self.outputs, *(self.pieces if streams else ()))}
        if not names:
            return [output for output in there.values() if output.asked_by == "" or given.get(output.asked_by or "")]
        for index, name in enumerate(names):
            if name not in there:
                raise InvalidInputError(f"outputs[{index}].name", self._unknown(name, there))
            if name in names[:index]:
                raise InvalidInputError(f"outputs[{index}].name", f"{name!r} is there twice")
        return [there[name] for name in names]

    def _unknown(self, name: str, there: Mapping[str, Output]) -> str:
        if any(name == piece.name for piece in self.pieces):
            return f"{name!r} is for ModelStreamInfer"
        return f"there is no output {name!r}; there are: {', '.join(there)}"


TEXT_INPUT = TensorInput("text")
TOKEN_COUNT = Output("token_count", UINT32, lambda result: result.token_count, asked_by=None)
# Of everything that has scored labels, best first.
LABELS = (
    Output("label", BYTES, lambda result: [one.label for one in result.labels], (-1,), 50),
    Output("score", FP32, lambda result: [one.score for one in result.labels], (-1,), 50),
    Output("index", UINT32, lambda result: [one.index for one in result.labels], (-1,), 50, asked_by=None),
)
