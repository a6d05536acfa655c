"""The table of unary calls: method, arguments, inputs and results of each task.

Text tasks are in `triptych_client.text_tasks`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Self, TypeAlias, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from triptych.v1 import attention_pb2, image_classification_pb2, image_generation_pb2, model_pb2, translation_pb2
from triptych_client import arguments as named
from triptych_client.call import Call
from triptych_client.connection import Request, Response, RpcMethod
from triptych_client.errors import InvalidArgumentError, ResourceExhaustedError, TriptychClientError
from triptych_client.messages import (
    ServedFields,
    attention_from,
    fill,
    model_from,
    options_message,
    read,
    same,
    served_from,
    translation_from,
)
from triptych_client.results import (
    ClassifiedImage,
    GeneratedImages,
    ImageCompletion,
    Model,
    Results,
    Timing,
    Translation,
    TranslationScore,
)
from triptych_client.status import INPUT_INDEX, broken_contract

Result = TypeVar("Result")
Texts: TypeAlias = list[str] | tuple[str, ...]

# Below gRPC's default limit of 4 MiB, with room for a response that is longer than the request.
BYTES_PER_REQUEST = 1024 * 1024
# Of sentences of 10 bytes, 4,000 with 4 hypotheses of 256 tokens: as many as a server decodes for one request by default.
BYTES_TO_DECODE, HYPOTHESES, TOKENS = 40_000, 4, 256


def method_of(module: Any, service: str, name: str) -> tuple[str, type[Any], type[Any]]:
    """Return path, request and response of a method in a generated module."""
    method = module.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    path = f"/{method.containing_service.full_name}/{name}"
    return path, GetMessageClass(method.input_type), GetMessageClass(method.output_type)


@dataclass(frozen=True)
class SimpleCall(RpcMethod[Request, Response], Generic[Request, Response, Result]):
    """A call with one request and one result."""

    result: Callable[[Response], Result]
    name: str
    """Method of the client."""
    arguments: Any = named.CallArguments
    """TypedDict of the named arguments. Apart from the call's own, they have the names of the request's fields."""


def _models(response: model_pb2.ListModelsResponse | model_pb2.LoadModelResponse) -> list[Model]:
    return [model_from(model) for model in response.models]


LIST_MODELS = SimpleCall(*method_of(model_pb2, "ModelService", "ListModels"), _models, "models")
GET_MODEL = SimpleCall(*method_of(model_pb2, "ModelService", "GetModel"), lambda response: model_from(response.model), "model")
LOAD_MODEL = SimpleCall(*method_of(model_pb2, "ModelService", "LoadModel"), _models, "load_model")
UNLOAD_MODEL = SimpleCall(*method_of(model_pb2, "ModelService", "UnloadModel"), lambda _: None, "unload_model")
ATTEND = SimpleCall(*method_of(attention_pb2, "AttentionService", "Attend"), attention_from, "attend", named.AttendArguments)


def _image_call(method: str, name: str, arguments: Any) -> SimpleCall[Any, Any, GeneratedImages]:
    path = method_of(image_generation_pb2, "ImageGenerationService", method)
    return SimpleCall(*path, partial(read, GeneratedImages), name, arguments)


GENERATE_IMAGES = _image_call("GenerateImages", "generate_images", named.GenerateImagesArguments)
RECONSTRUCT_IMAGE = _image_call("ReconstructImage", "reconstruct_image", named.ModelArguments)
INTERPOLATE = _image_call("Interpolate", "interpolate", named.InterpolateArguments)
# Without the package of grpc.health.v1: its two messages have one field each, number 1, and so the same bytes as protobuf's
# wrappers of a string and an int32. SERVING is 1.
CHECK_HEALTH = SimpleCall("/grpc.health.v1.Health/Check", StringValue, Int32Value, lambda found: found.value == 1, "is_ready")


def is_text(each: Any) -> bool:
    """Return whether an input is a text."""
    return isinstance(each, str)


def is_pair(each: Any) -> bool:
    """Return whether an input is a pair of texts."""
    return isinstance(each, tuple | list) and len(each) == 2 and all(map(is_text, each))


@dataclass(frozen=True, kw_only=True)
class UnaryTask(RpcMethod[Any, Any], Generic[Result]):
    """A unary method that takes a list of inputs and returns one result for each."""

    name: str
    """Method of the client that takes a list of inputs."""
    arguments: Any
    """TypedDict of the named arguments. Apart from the call's own, they have the names of the request's fields."""
    result: type[Result]
    inputs: str = "contents"
    """Repeated field of the request."""
    results: str = "results"
    """Repeated field of the response."""
    takes: str = "text"
    """What an input is, in errors."""
    accepts: Callable[[Any], bool] = is_text
    """Whether an input has the right type."""
    to_message: Callable[[Any], Any] = same
    """Converts an input to an element of the request's field."""
    to_result: Callable[[Any, ServedFields], Result] | None = None
    """Converts an element of the response's field; by default, its fields are read by name."""
    filled: str = ""
    """Repeated field of a result that is never empty."""
    copies: str = ""
    """Integer argument that says how often the response repeats an input; empty for once."""
    decodes: bool = False
    """The server decodes a translation of each sentence, which limits the size of a request."""

    def request_with(self, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
        """Make one request with all inputs. Raises TypeError and ValueError as `batch`."""
        inputs, _ = self._checked(inputs)
        return self._with_inputs(self._without_inputs(inputs, arguments), inputs, _prefixes(arguments))

    def batch(
        self,
        inputs: Iterable[Any],
        arguments: Mapping[str, Any],
        call: Call,
        most_inputs: int,
        most_bytes: int,
        fail_fast: bool = False,
    ) -> "RequestBatch[Result]":
        """Split the inputs into requests.

        Args:
            arguments: Named arguments, without those of the call.
            most_inputs: Maximum number of inputs per request.
            most_bytes: Maximum size of a message; requests take up to half of it, unless a single input is larger.
            fail_fast: An invalid input fails the batch, rather than having an error for result.

        Raises:
            TypeError: The inputs are not a sequence of what the task takes, or an argument is unknown.
            ValueError: An argument is out of range, or a text is not Unicode.
        """
        inputs, sizes = self._checked(inputs)
        shared, prefixes = self._without_inputs(inputs, arguments), _prefixes(arguments)
        copies = max(1, arguments.get(self.copies) or 1)
        requests = [
            BatchRequest(
                self,
                self._with_inputs(shared, inputs[part], prefixes[part]),
                replace(call, first_input=part.start, input_count=part.stop - part.start),
                fail_fast,
            )
            for part in split([copies * size for size in sizes], most_inputs, min(most_bytes // 2, self._budget(arguments)))
        ]
        for each in requests:
            each.check_size(most_bytes)
        return RequestBatch(self, call.request_id, requests)

    def parse(self, response: Any, request_id: str) -> list[Result]:
        """Read the results of one response."""
        served = served_from(response, request_id)
        return [self.result_from(message, served) for message in getattr(response, self.results)]

    def result_from(self, message: Any, served: ServedFields) -> Result:
        """Read one result. Raises ServerError if it is empty."""
        if self.filled and not getattr(message, self.filled):
            raise broken_contract(f"the server sent a result without {self.filled}", served["request_id"])
        return self.to_result(message, served) if self.to_result else read(self.result, message, **served)

    def using(self, path: str, request: type[Any], response: type[Any]) -> Self:
        """Return the task with another method, such as one with a stream."""
        return replace(self, path=path, request=request, response=response)

    def _budget(self, arguments: Mapping[str, Any]) -> int:
        """Return the most bytes of inputs in one request."""
        if not self.decodes:
            return BYTES_PER_REQUEST
        options = arguments.get("options")
        asked = max(options.beam_size or 0, options.num_hypotheses or 0) if options else 0
        length = options.max_length or 0 if options else 0
        return max(1, BYTES_TO_DECODE * HYPOTHESES * TOKENS // (max(asked, HYPOTHESES) * max(length, TOKENS)))

    def _checked(self, inputs: Iterable[Any]) -> tuple[Sequence[Any], list[int]]:
        """Return the inputs as a sequence, and their bytes. Raises TypeError and ValueError, which say what to write."""
        one, single = self.takes, self.name.removesuffix("_many")
        takes = f"{single} takes one {one}, {self.name} a sequence of them" if single != self.name else f"{single} takes {one}s"
        if isinstance(inputs, str | bytes) or not isinstance(inputs, Iterable):
            raise TypeError(f"{self.name} takes a sequence of {one}s, not {type(inputs).__name__} ({takes})")
        found = inputs if isinstance(inputs, list | tuple) else list(inputs)
        sizes = []
        for index, each in enumerate(found):
            if not self.accepts(each):
                raise TypeError(f"{takes}; input {index} is of type {type(each).__name__}")
            try:
                sizes.append(byte_size(each))
            except UnicodeEncodeError as error:
                problem = f"lone surrogate {error.object[error.start]!r} at character {error.start}"
                raise ValueError(f"input {index} is not Unicode: {problem}") from None
        return found, sizes

    def _without_inputs(self, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Message:
        """Check inputs and arguments, and fill the fields that all requests share."""
        named.check_names(self.name.removesuffix("_many"), arguments, self.arguments)
        values = dict(arguments)
        if options := values.get("options"):
            # Checked before the split, after which some requests could have prefixes and others none.
            if len(options.target_prefix) not in (0, len(inputs)):
                problem = f"{len(options.target_prefix)} prefixes for {len(inputs)} texts, must be none or one for each"
                raise ValueError(f"target_prefix has {problem}")
            values["options"] = options_message(options)
            values["options"].ClearField("target_prefix")
        shared: Message = fill(self.request, values)
        return shared

    def _with_inputs(self, shared: Message, inputs: Sequence[Any], prefixes: Sequence[str]) -> Any:
        request = self.request()
        request.CopyFrom(shared)
        getattr(request, self.inputs).extend(map(self.to_message, inputs))
        if prefixes:
            request.options.target_prefix.extend(prefixes)
        return request


@dataclass
class BatchRequest:
    """A request for some inputs of a batch. Inputs that the server rejects are left out when it is sent again."""

    task: UnaryTask[Any]
    request: Any
    call: Call
    fail_fast: bool
    errors: dict[int, InvalidArgumentError | ResourceExhaustedError] = field(default_factory=dict)
    """Of rejected inputs, by their indices among the user's inputs."""

    def __post_init__(self) -> None:
        self.left = list(range(self.call.first_input, self.call.first_input + self.call.input_count))

    def check_size(self, most: int) -> None:
        """Leave out a single input whose message is too large: gRPC's error would be that of the whole list.

        Raises:
            ResourceExhaustedError: The input may not be left out.
        """
        if len(self.left) != 1 or (size := self.request.ByteSize()) <= most:
            return
        [index] = self.left
        message = f"{self.task.inputs}[{index}]: its message has {size:,} bytes, `max_message_bytes` of the client is {most:,}"
        error = ResourceExhaustedError(message, code="RESOURCE_EXHAUSTED", request_id=self.call.request_id)
        if self.fail_fast:
            raise error
        self.left, self.errors[index] = [], error

    def leave_out(self, error: InvalidArgumentError) -> None:
        """Leave out the inputs that an error names. Raises the error itself, if it is about anything else."""
        only = f"{self.task.inputs}[{self.call.first_input}]"  # a fault of the whole request is that of its only input
        violations = [
            replace(each, field=only) if len(self.left) == 1 and each.field == self.task.inputs else each
            for each in error.violations
        ]
        named_inputs = [(INPUT_INDEX.search(each.field), each) for each in violations]
        if self.fail_fast or not named_inputs or not all(m and m["field"] == self.task.inputs for m, _ in named_inputs):
            raise error
        faults = set()
        for match, each in named_inputs:
            assert match is not None
            place = int(match["index"]) - self.call.first_input  # in the request as it was sent
            faults.add(place)
            index = self.left[place]
            name = f"{each.field[: match.start('index')]}{index}{each.field[match.end('index') :]}"
            self.errors[index] = InvalidArgumentError(
                f"{name}: {each.description}",
                code=error.code,
                request_id=error.request_id,
                reason=error.reason,
                violations=(replace(each, field=name),),
            )
        kept = [place for place in range(len(self.left)) if place not in faults]
        self.left = [self.left[place] for place in kept]
        request = self.task.request()
        request.CopyFrom(self.request)
        fields = [(getattr(self.request, self.task.inputs), getattr(request, self.task.inputs))]
        if "options" in self.task.arguments.__optional_keys__ and self.request.options.target_prefix:
            fields.append((self.request.options.target_prefix, request.options.target_prefix))
        for old, new in fields:
            del new[:]
            new.extend(old[place] for place in kept)
        self.request = request


@dataclass(frozen=True)
class RequestBatch(Generic[Result]):
    """The requests for one call by the user, in the order of the inputs; none for no inputs."""

    task: UnaryTask[Result]
    request_id: str
    requests: list[BatchRequest]

    def results(self, responses: Sequence[Any]) -> Results[Result]:
        """Join the responses, in the order of the requests; None for a request without valid inputs.

        Raises:
            ServerError: A response does not fit its request.
        """
        outcomes: dict[int, Result | TriptychClientError] = {}
        for part, response in zip(self.requests, responses, strict=True):
            found = [] if response is None else self.task.parse(response, self.request_id)
            if len(found) != len(part.left):
                raise broken_contract(f"the server sent {len(found)} results for {len(part.left)} inputs", self.request_id)
            outcomes |= part.errors | dict(zip(part.left, found, strict=True))
        timings = tuple(read(Timing, response.timing) for response in responses if response is not None)
        return Results(tuple(outcomes[index] for index in sorted(outcomes)), timings, self.request_id)


def _prefixes(arguments: Mapping[str, Any]) -> Sequence[str]:
    options = arguments.get("options")
    return options.target_prefix if options else ()


def split(sizes: Sequence[int], most_inputs: int, most_bytes: int) -> Iterator[slice]:
    """Split inputs of these sizes into slices of at most `most_inputs` and `most_bytes`; a larger input is on its own."""
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most_inputs or total + size > most_bytes):
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def byte_size(each: str | bytes | tuple[str, ...] | list[str]) -> int:
    """Return the bytes of an image, or of texts in UTF-8. Raises UnicodeEncodeError."""
    if isinstance(each, tuple | list):
        return sum(map(byte_size, each))
    return len(each) if isinstance(each, bytes) or each.isascii() else len(each.encode())


TRANSLATE = UnaryTask(
    *method_of(translation_pb2, "TranslationService", "Translate"),
    name="translate_many",
    arguments=named.TextsArguments,
    result=Translation,
    results="translations",
    to_result=translation_from,
    filled="hypotheses",
    decodes=True,
)
TRANSLATE_STREAM = TRANSLATE.using(*method_of(translation_pb2, "TranslationService", "TranslateStream"))
SCORE_TRANSLATIONS = UnaryTask(
    *method_of(translation_pb2, "TranslationService", "ScoreTranslations"),
    name="score_translations",
    arguments=named.ScoreArguments,
    result=TranslationScore,
    inputs="pairs",
    results="scores",
    takes="(source, translation) pair",
    accepts=is_pair,
    to_message=lambda pair: translation_pb2.TranslationPair(source=pair[0], target=pair[1]),
)
CLASSIFY_IMAGE = UnaryTask(
    *method_of(image_classification_pb2, "ImageClassificationService", "ClassifyImage"),
    name="classify_image_many",
    arguments=named.ClassifyImageArguments,
    result=ClassifiedImage,
    inputs="images",
    takes="image",
    accepts=lambda each: isinstance(each, bytes),
)

COMPLETE_IMAGE = UnaryTask(
    *method_of(image_generation_pb2, "ImageGenerationService", "CompleteImage"),
    name="complete_image",
    arguments=named.CompleteImageArguments,
    result=ImageCompletion,
    inputs="images",
    results="completions",
    takes="image",
    accepts=lambda each: isinstance(each, bytes),
    filled="images",
)
