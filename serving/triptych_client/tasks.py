"""The table of unary calls: method, arguments, inputs and results of each task.

A new task is one entry here, its arguments in `triptych_client.arguments`, its result in `triptych_client.results`, and the
public methods of the two clients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    model_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
    translation_pb2,
)
from triptych_client import arguments as named
from triptych_client.call import Call
from triptych_client.connection import Request, Response, RpcMethod
from triptych_client.errors import ServerError
from triptych_client.messages import ServedFields, fill, model_from, options_message, read, served_from, translation_from
from triptych_client.results import (
    AnsweredQuestion,
    ClassifiedImage,
    ClassifiedText,
    Embedding,
    FilledText,
    LabelledText,
    Model,
    Results,
    Timing,
    Translation,
    TranslationScore,
)

Result = TypeVar("Result")
TextOrPair: TypeAlias = str | tuple[str, str]

# Below gRPC's default limit of 4 MiB, with room for a response that is longer than the request.
BYTES_PER_REQUEST = 1024 * 1024


def _method(module: Any, service: str, name: str) -> tuple[str, type[Any], type[Any]]:
    """Return path, request and response of a method in a generated module."""
    method = module.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    path = f"/{method.containing_service.full_name}/{name}"
    return path, GetMessageClass(method.input_type), GetMessageClass(method.output_type)


@dataclass(frozen=True)
class SimpleCall(RpcMethod[Request, Response], Generic[Request, Response, Result]):
    """A call with one request and one result."""

    result: Callable[[Response], Result]


def _models(response: model_pb2.ListModelsResponse | model_pb2.LoadModelResponse) -> list[Model]:
    return [model_from(model) for model in response.models]


LIST_MODELS = SimpleCall(*_method(model_pb2, "ModelService", "ListModels"), _models)
GET_MODEL = SimpleCall(*_method(model_pb2, "ModelService", "GetModel"), lambda response: model_from(response.model))
LOAD_MODEL = SimpleCall(*_method(model_pb2, "ModelService", "LoadModel"), _models)
UNLOAD_MODEL = SimpleCall(*_method(model_pb2, "ModelService", "UnloadModel"), lambda _: None)
# Without the package of grpc.health.v1: its two messages have one field each, number 1, and so the same bytes as protobuf's
# wrappers of a string and an int32. SERVING is 1.
CHECK_HEALTH = SimpleCall("/grpc.health.v1.Health/Check", StringValue, Int32Value, lambda response: response.value == 1)


def _same(value: Any) -> Any:
    return value


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
    pairs: str = ""
    """Names of an input's two texts, such as "(question, context)"; empty if an input may be a single text."""
    to_message: Callable[[Any], Any] = _same
    """Converts an input to an element of the request's field."""
    to_result: Callable[[Any, ServedFields], Result] | None = None
    """Converts an element of the response's field; by default, its fields are read by name."""
    copies: str = ""
    """Integer argument that says how often the response repeats an input; empty for once."""

    def request_with(self, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
        """Make one request with all inputs. Raises TypeError and ValueError as `batch`."""
        return self._with_inputs(self._without_inputs(inputs, arguments), inputs, _prefixes(arguments))

    def batch(
        self, inputs: Sequence[Any], arguments: Mapping[str, Any], call: Call, most_inputs: int, most_bytes: int
    ) -> "RequestBatch[Result]":
        """Split the inputs into requests.

        Args:
            inputs: The user's inputs.
            arguments: Named arguments, without those of the call.
            call: Sent with each request.
            most_inputs: Maximum number of inputs per request.
            most_bytes: Maximum size of a message; requests take up to half of it, unless a single input is larger.

        Raises:
            TypeError: The inputs are not a sequence of what the task takes, or an argument is unknown.
            ValueError: An argument is out of range.
        """
        shared, prefixes = self._without_inputs(inputs, arguments), _prefixes(arguments)
        copies = max(1, arguments.get(self.copies) or 1)
        sizes = [copies * byte_size(each) for each in inputs]
        requests = [
            (
                self._with_inputs(shared, inputs[part], prefixes[part]),
                replace(call, first_input=part.start, input_count=part.stop - part.start),
            )
            for part in split(sizes, most_inputs, min(most_bytes // 2, BYTES_PER_REQUEST))
        ]
        return RequestBatch(self, call.request_id, requests)

    def parse(self, response: Any, request_id: str) -> list[Result]:
        """Read the results of one response."""
        served = served_from(response, request_id)
        messages = getattr(response, self.results)
        if self.to_result is not None:
            return [self.to_result(message, served) for message in messages]
        return [read(self.result, message, **served) for message in messages]

    def _without_inputs(self, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Message:
        """Check inputs and arguments, and fill the fields that all requests share."""
        if self.pairs and any(isinstance(each, str) for each in inputs):
            raise TypeError(f"{self.name} takes a sequence of {self.pairs} pairs")
        if isinstance(inputs, str):  # it would be read as a sequence of one-letter texts
            raise TypeError(f"{self.name} takes a sequence of texts; {self.name.removesuffix('_many')} takes one text")
        if unknown := arguments.keys() - self.arguments.__optional_keys__:
            raise TypeError(f"{self.name}() got an unexpected keyword argument {min(unknown)!r}")
        values = dict(arguments)
        if options := values.get("options"):
            # Checked before the split, after which some requests could have prefixes and others none.
            if len(options.target_prefix) not in (0, len(inputs)):
                problem = f"{len(options.target_prefix)} prefixes for {len(inputs)} texts, must be none or one for each"
                raise ValueError(f"target_prefix has {problem}")
            values["options"] = options_message(replace(options, target_prefix=()))
        shared: Message = fill(self.request, values)
        return shared

    def _with_inputs(self, shared: Message, inputs: Sequence[Any], prefixes: Sequence[str]) -> Any:
        request = self.request()
        request.CopyFrom(shared)
        getattr(request, self.inputs).extend(map(self.to_message, inputs))
        if prefixes:
            request.options.target_prefix.extend(prefixes)
        return request


@dataclass(frozen=True)
class RequestBatch(Generic[Result]):
    """The requests for one call by the user, in the order of the inputs; none for no inputs."""

    task: UnaryTask[Result]
    request_id: str
    requests: list[tuple[Any, Call]]

    def results(self, responses: Sequence[Any]) -> Results[Result]:
        """Join the responses, in the order of the requests. Raises ServerError if one does not fit its request."""
        items: list[Result] = []
        for (_, call), response in zip(self.requests, responses, strict=True):
            found = self.task.parse(response, call.request_id)
            if len(found) != call.input_count:
                message = f"the server sent {len(found)} results for {call.input_count} inputs"
                raise ServerError(message, code="INTERNAL", request_id=call.request_id)
            items += found
        return Results(tuple(items), tuple(read(Timing, response.timing) for response in responses), self.request_id)


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


def byte_size(each: str | bytes | tuple[str, ...]) -> int:
    """Return the bytes of an image, or of texts in UTF-8."""
    if isinstance(each, tuple):
        return sum(map(byte_size, each))
    return len(each) if isinstance(each, bytes) or each.isascii() else len(each.encode())


def _text_input(each: TextOrPair) -> text_classification_pb2.TextInput:
    text, text_pair = (each, "") if isinstance(each, str) else each
    return text_classification_pb2.TextInput(text=text, text_pair=text_pair)


TRANSLATE = UnaryTask(
    *_method(translation_pb2, "TranslationService", "Translate"),
    name="translate_many",
    arguments=named.TranslateArguments,
    result=Translation,
    results="translations",
    to_result=translation_from,
)
TRANSLATE_STREAM: UnaryTask[Translation] = replace(
    TRANSLATE,
    path="/triptych.v1.TranslationService/TranslateStream",
    request=translation_pb2.TranslateStreamRequest,
    response=translation_pb2.TranslateStreamResponse,
)
SCORE_TRANSLATIONS = UnaryTask(
    *_method(translation_pb2, "TranslationService", "ScoreTranslations"),
    name="score_translations",
    arguments=named.ScoreArguments,
    result=TranslationScore,
    inputs="pairs",
    results="scores",
    pairs="(source, translation)",
    to_message=lambda pair: translation_pb2.TranslationPair(source=pair[0], target=pair[1]),
)
FILL_MASK = UnaryTask(
    *_method(fill_mask_pb2, "FillMaskService", "FillMask"),
    name="fill_mask_many",
    arguments=named.FillMaskArguments,
    result=FilledText,
    copies="top_k",
)
EMBED = UnaryTask(
    *_method(embedding_pb2, "EmbeddingService", "EmbedText"),
    name="embed_many",
    arguments=named.EmbedArguments,
    result=Embedding,
    results="embeddings",
)
CLASSIFY_TEXT = UnaryTask(
    *_method(text_classification_pb2, "TextClassificationService", "ClassifyText"),
    name="classify_text_many",
    arguments=named.ClassifyTextArguments,
    result=ClassifiedText,
    inputs="inputs",
    to_message=_text_input,
)
CLASSIFY_TOKENS = UnaryTask(
    *_method(token_classification_pb2, "TokenClassificationService", "ClassifyTokens"),
    name="classify_tokens_many",
    arguments=named.ClassifyTokensArguments,
    result=LabelledText,
)
ANSWER = UnaryTask(
    *_method(question_answering_pb2, "QuestionAnsweringService", "AnswerQuestion"),
    name="answer_many",
    arguments=named.AnswerArguments,
    result=AnsweredQuestion,
    inputs="inputs",
    pairs="(question, context)",
    to_message=lambda pair: question_answering_pb2.QuestionInput(question=pair[0], context=pair[1]),
)
CLASSIFY_IMAGE = UnaryTask(
    *_method(image_classification_pb2, "ImageClassificationService", "ClassifyImage"),
    name="classify_image_many",
    arguments=named.ClassifyImageArguments,
    result=ClassifiedImage,
    inputs="images",
)
