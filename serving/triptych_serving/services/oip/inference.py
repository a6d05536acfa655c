"""ModelInfer and ModelStreamInfer."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.model import Model
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.event_loop import INLINE_CHARACTERS, Offload
from triptych_serving.rpc.limits import MessageLimit
from triptych_serving.rpc.request_stream import RequestStream
from triptych_serving.rpc.status import public_error, status_of
from triptych_serving.rpc.wire import Parts, chunks, nested
from triptych_serving.services.decode_calls import FinishedText, TextPiece
from triptych_serving.services.oip.parameters import TEXT, parameters_from, wants_empty_final
from triptych_serving.services.oip.plain_tensors import infer_tensors
from triptych_serving.services.oip.task import InferQuery, InferTask, OutputTensor, TaskCalls, TaskResults
from triptych_serving.services.oip.tasks import TASK_PARAMETER, TASKS, task_from
from triptych_serving.services.oip.tensors import Buffer, check_outputs, encode, inputs_from

Response = TypeVar("Response")

FINAL = "triton_final_response"
IN_FLIGHT = 64  # requests of a stream that are read and not yet answered
UNREAD = 64  # responses that wait for a slow reader

# Fields in the errors of other protocols: `contents[3]`, `prompts[0]`, `inputs[0].text_pair`, `options.beam_size`, `top_k`.
_INPUT_FIELD = re.compile(r"(?:contents|prompts|inputs|images)(\[\d+])?(?:\.(\w+))?")


@dataclass(frozen=True)
class InferCall:
    """A converted request and its task."""

    request: pb.ModelInferRequest
    task: InferTask
    query: InferQuery

    @contextmanager
    def renamed_fields(self) -> Iterator[None]:
        """Rename the fields in errors to those of this protocol."""
        try:
            yield
        except InvalidInputError as error:
            raise InvalidInputError(self._field(error.field), error.problem) from error

    def response(
        self, outputs: Sequence[OutputTensor] = (), results: Sequence[Any] = (), limit: MessageLimit | None = None
    ) -> pb.ModelInferResponse:
        """Encode outputs of results. If inputs are columns, so are outputs with one value per element.

        Raises:
            TooLargeError: the tensors are above the limit; found before they are made.
        """
        return whole_response(*self._encoded(outputs, results, limit))

    def serialized(self, outputs: Sequence[OutputTensor], results: TaskResults, limit: MessageLimit | None) -> Parts:
        """Encode outputs of results as the parts of a message, and drop the results; otherwise as `response`."""
        response, contents = self._encoded(outputs, results, limit)
        results.clear()  # they are as large as the contents, or larger
        return parts_of(response, contents)

    def _encoded(
        self, outputs: Sequence[OutputTensor], results: Sequence[Any], limit: MessageLimit | None
    ) -> tuple[pb.ModelInferResponse, list[Buffer]]:
        """Return a response without contents, and the raw contents of its tensors."""
        query = self.query
        contents: list[Buffer] = []

        def check_size(size: int) -> None:
            if limit is not None:
                limit.check_response(sum(map(len, contents)) + size)

        response = pb.ModelInferResponse(model_name=query.model, model_version=query.version, id=self.request.id)
        for output in outputs:
            shape, raw = encode(map(output.read, results), 1 + len(output.sizes), output.datatype, check_size)
            contents.append(raw)
            if query.inputs.is_column and not output.sizes:
                shape = (*shape, 1)
            response.outputs.add(name=output.name, datatype=output.datatype, shape=shape)
        return response, contents

    def _field(self, field: str) -> str:
        if part := _INPUT_FIELD.fullmatch(field):
            return f"{part[2] or self.task.inputs[0].name}{part[1] or ''}"
        name = field.removeprefix("options.")
        return f"parameters.{name}" if re.split(r"\W", name)[0] in self.task.parameters else field


def whole_response(response: pb.ModelInferResponse, contents: list[Buffer]) -> pb.ModelInferResponse:
    """Return a response with its contents."""
    response.raw_output_contents.extend(map(bytes, contents))
    return response


def parts_of(response: pb.ModelInferResponse, contents: list[Buffer]) -> Parts:
    """Return a response as the parts of a message; each tensor is dropped once it is copied."""
    parts = [response.SerializeToString()]
    while contents:
        parts += nested(pb.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER, chunks(contents.pop(0)))
    return parts


def infer_call_from(request: pb.ModelInferRequest, model: Model, streams: bool = False) -> InferCall:
    """Convert a request to a model.

    Args:
        streams: the request came on a stream.

    Raises:
        InvalidInputError: a part of the request is invalid; names it.
    """
    given = dict(request.parameters)
    task = TASKS[_task_of(given, model)]
    values = parameters_from(given, {**task.parameters, TASK_PARAMETER: TEXT})
    check_outputs(request.outputs, (), "outputs take none; classification and shared memory are not supported")
    outputs = task.select([output.name for output in request.outputs], values, streams)
    query = InferQuery(model.name, str(model.version), inputs_from(request, task.inputs), values, outputs)
    return InferCall(request, task, query)


def _task_of(given: dict[str, pb.InferParameter], model: Model) -> str:
    """Remove the task from a request's parameters and return it. Raises InvalidInputError: the model does not have it."""
    chosen = {TASK_PARAMETER: given.pop(TASK_PARAMETER)} if TASK_PARAMETER in given else {}
    return task_from(parameters_from(chosen, {TASK_PARAMETER: TEXT}).get(TASK_PARAMETER), model)


class Inference:
    """Run inference requests.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        pool: threads for large responses.
    """

    def __init__(self, registry: Callable[[], Registry], calls: TaskCalls, pool: Executor) -> None:
        self._registry = registry
        self._calls = calls
        self._offload = Offload(pool)
        self._limit = MessageLimit(calls.response_bytes)

    async def infer(self, request: pb.ModelInferRequest, context: GrpcContext) -> bytes | Parts:
        """Return the serialized response to a request, or its parts. Raises ServingError: the request cannot be served."""
        model = self._model(request)
        if isinstance(model, TensorModel):
            return await self._infer_plain(model, request, context, parts_of)
        call = infer_call_from(request, model)
        return await self._made(call, await self._results(call, context), call.serialized)

    async def stream(self, request: pb.ModelInferRequest, context: GrpcContext) -> AsyncGenerator[pb.ModelStreamInferResponse]:
        """Yield all responses to one request of a stream; errors are responses, too."""
        try:
            async with aclosing(self._responses(request, context)) as responses:
                async for response, is_final in responses:
                    response.parameters[FINAL].bool_param = is_final
                    yield pb.ModelStreamInferResponse(infer_response=response)
        except Exception as error:  # any error: the other requests of the stream must be answered
            yield _failure(request, error)

    async def _responses(
        self, request: pb.ModelInferRequest, context: GrpcContext
    ) -> AsyncGenerator[tuple[pb.ModelInferResponse, bool]]:
        """Yield pieces, then the complete result; with an empty final response, the result comes before it."""
        model = self._model(request)
        if isinstance(model, TensorModel):
            yield await self._infer_plain(model, request, context, whole_response), True
            return
        empty_final = wants_empty_final(request.parameters)
        call = infer_call_from(request, model, streams=True)
        if call.task.stream is None:
            yield await self._made(call, await self._results(call, context), call.response), True
            return
        results: list[Any] = []
        async with aclosing(self._pieces(call, context, results)) as pieces:
            async for piece in pieces:
                yield piece, False
        complete = await self._made(call, results, call.response)
        if not empty_final:
            yield complete, True
            return
        if complete.outputs:
            yield complete, False
        yield call.response(), True

    async def _pieces(self, call: InferCall, context: GrpcContext, results: list[Any]) -> AsyncGenerator[pb.ModelInferResponse]:
        """Yield the requested pieces, and append all results to `results`."""
        task, query = call.task, call.query
        outputs = [output for output in query.outputs if output in task.pieces]
        if task.stream is None or not outputs:
            results += await self._results(call, context)
            return
        done: dict[int, Any] = {}
        with call.renamed_fields():
            async with aclosing(task.stream(self._calls, query, context)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        yield call.response(outputs, [event])
                    elif isinstance(event, FinishedText):
                        done[event.index] = event.result
        results += [done[index] for index in sorted(done)]

    async def _infer_plain(
        self,
        model: TensorModel,
        request: pb.ModelInferRequest,
        context: GrpcContext,
        form: Callable[[pb.ModelInferResponse, list[Buffer]], Response],
    ) -> Response:
        """Run a model of plain tensors; `form` makes what is returned of the response and its raw contents."""
        given = dict(request.parameters)
        _task_of(given, model)
        parameters_from(given, {TASK_PARAMETER: TEXT})  # there are no others
        response, contents = await infer_tensors(model, request, context, self._limit)
        return await self._offload.run(sum(map(len, contents)), form, response, contents)

    def _model(self, request: pb.ModelInferRequest) -> Model:
        """Return the requested model. Raises ServingError: none is named, or it is not loaded."""
        if not request.model_name:
            raise InvalidInputError("model_name", "empty, name a model")
        return self._registry().named(ModelSelector(request.model_name, request.model_version))

    async def _results(self, call: InferCall, context: GrpcContext) -> TaskResults:
        with call.renamed_fields():
            return await call.task.run(self._calls, call.query, context)

    async def _made(self, call: InferCall, results: TaskResults, make: Callable[..., Response]) -> Response:
        """Return the response with the complete results; a large one is made in a thread."""
        outputs = [output for output in call.query.outputs if output not in call.task.pieces]
        return await self._offload.run(_weight(outputs, results), make, outputs, results, self._limit)


class InferStream(RequestStream[pb.ModelInferRequest, pb.ModelStreamInferResponse]):
    """The requests of one stream, each with any number of responses.

    The responses of one request are in order. Requests without an id, whose responses the caller could not match, are answered
    in their order, as Triton answers all requests.

    Args:
        answer: yields all responses to one request; must not raise.
    """

    def __init__(self, answer: Callable[[pb.ModelInferRequest], AsyncGenerator[pb.ModelStreamInferResponse]]) -> None:
        super().__init__(IN_FLIGHT)
        self._answer = answer
        self._unread = asyncio.Semaphore(UNREAD)
        self._last: asyncio.Event | None = None  # set when the last request without an id is answered

    def _on_sent(self) -> None:
        self._unread.release()

    def _serve(self, request: pb.ModelInferRequest) -> Coroutine[Any, Any, None]:
        if request.id:
            return self._answer_after(None, request, None)
        previous, self._last = self._last, asyncio.Event()
        return self._answer_after(previous, request, self._last)

    async def _answer_after(
        self, previous: asyncio.Event | None, request: pb.ModelInferRequest, answered: asyncio.Event | None
    ) -> None:
        try:
            async with aclosing(self._answer(request)) as responses:
                async for response in responses:
                    if previous is not None:
                        await previous.wait()
                    await self._unread.acquire()
                    self._responses.put_nowait(response)
        finally:
            if answered is not None:
                answered.set()
            self._room.release()


def _weight(outputs: Sequence[OutputTensor], results: Sequence[Any]) -> int:
    """Return roughly how many characters a response has, or how many the first results have if that is much already."""
    weight = 0
    for result in results:
        weight += sum(output.weight(result) for output in outputs)
        if weight > INLINE_CHARACTERS:
            break
    return weight


def _failure(request: pb.ModelInferRequest, error: Exception) -> pb.ModelStreamInferResponse:
    """Convert an error. Clients of this protocol pass on only the message, so it begins with the status."""
    request_id = current_call.get().request_id
    shown = public_error(error, request_id)
    response = pb.ModelInferResponse(model_name=request.model_name, model_version=request.model_version, id=request.id)
    response.parameters[FINAL].bool_param = True
    message = f"{shown.status}: {status_of(shown, request_id).message}"
    return pb.ModelStreamInferResponse(error_message=message, infer_response=response)
