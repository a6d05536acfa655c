"""ModelInfer and ModelStreamInfer."""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.model import Model
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.event_loop import INLINE_CHARACTERS, Offload
from triptych_serving.rpc.limits import MessageLimit
from triptych_serving.rpc.status import public_error, status_of
from triptych_serving.rpc.wire import Parts, chunks, nested
from triptych_serving.services.decode_calls import FinishedText, TextPiece
from triptych_serving.services.model_calls import required_name
from triptych_serving.services.oip.parameters import TEXT, parameters_from, wants_empty_final
from triptych_serving.services.oip.plain_tensors import infer_tensors
from triptych_serving.services.oip.task import InferQuery, InferTask, OutputTensor, TaskCalls, TaskResults
from triptych_serving.services.oip.tasks import TASK_PARAMETER, TASKS, task_from
from triptych_serving.services.oip.tensors import Buffer, check_outputs, encode, inputs_from

Response = TypeVar("Response")

Form = Callable[[pb.ModelInferResponse, list[Buffer]], Response]  # makes what is returned of a response and its contents

FINAL = "triton_final_response"

# Fields in the errors of other protocols: `contents[3]`, `prompts[0]`, `inputs[0].text_pair`, `options.beam_size`, `top_k`.
_INPUT_FIELD = re.compile(r"(?:contents|prompts|inputs|images)(\[\d+])?(?:\.(\w+))?")


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


def query_from(request: pb.ModelInferRequest, model: Model, streams: bool = False) -> InferQuery:
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
    inputs = inputs_from(request, task.inputs)
    return InferQuery(request.id, model.name, str(model.version), task, inputs, values, outputs)


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

    async def infer(self, request: pb.ModelInferRequest, context: GrpcContext) -> Parts:
        """Return the parts of the serialized response to a request. Raises ServingError: the request cannot be served."""
        model = self._model(request)
        if isinstance(model, TensorModel):
            return await self._infer_plain(model, request, context, parts_of)
        query = query_from(request, model)
        return await self._complete(query, await self._results(query, context), parts_of)

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
        query = query_from(request, model, streams=True)
        results: list[Any] = []
        async with aclosing(self._pieces(query, context, results)) as pieces:
            async for piece in pieces:
                yield piece, False
        complete = await self._complete(query, results, whole_response)
        if query.task.stream is None or not empty_final:
            yield complete, True
            return
        if complete.outputs:
            yield complete, False
        yield self._response(query, [], [], whole_response), True

    async def _pieces(
        self, query: InferQuery, context: GrpcContext, results: list[Any]
    ) -> AsyncGenerator[pb.ModelInferResponse]:
        """Yield the requested pieces, and append all results to `results`."""
        outputs = [output for output in query.outputs if output in query.task.pieces]
        if query.task.stream is None or not outputs:
            results += await self._results(query, context)
            return
        done: dict[int, Any] = {}
        with _renamed_fields(query.task):
            async with aclosing(query.task.stream(self._calls, query, context)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        yield self._response(query, outputs, [event], whole_response)
                    elif isinstance(event, FinishedText):
                        done[event.index] = event.result
        results += [done[index] for index in sorted(done)]

    async def _infer_plain(
        self, model: TensorModel, request: pb.ModelInferRequest, context: GrpcContext, form: Form[Response]
    ) -> Response:
        """Run a model of plain tensors."""
        given = dict(request.parameters)
        _task_of(given, model)
        parameters_from(given, {TASK_PARAMETER: TEXT})  # there are no others
        response, contents = await infer_tensors(model, request, context, self._limit)
        return await self._offload.run(sum(map(len, contents)), form, response, contents)

    def _model(self, request: pb.ModelInferRequest) -> Model:
        """Return the requested model. Raises ServingError: none is named, or it is not loaded."""
        name = required_name("model_name", request.model_name)
        return self._registry().named(ModelSelector(name, request.model_version))

    async def _results(self, query: InferQuery, context: GrpcContext) -> TaskResults:
        with _renamed_fields(query.task):
            results, _ = await query.task.run(self._calls, query, context)
            return results

    async def _complete(self, query: InferQuery, results: TaskResults, form: Form[Response]) -> Response:
        """Return the response with the complete results; a large one is made in a thread."""
        outputs = [output for output in query.outputs if output not in query.task.pieces]
        return await self._offload.run(_weight(outputs, results), self._response, query, outputs, results, form)

    def _response(
        self, query: InferQuery, outputs: Sequence[OutputTensor], results: TaskResults, form: Form[Response]
    ) -> Response:
        """Encode outputs of results, and drop the results. If inputs are columns, so are outputs with one value per element.

        Raises:
            TooLargeError: the tensors are above the limit; found before they are made.
        """
        contents: list[Buffer] = []

        def check_size(size: int) -> None:
            self._limit.check_response(sum(map(len, contents)) + size)

        response = pb.ModelInferResponse(model_name=query.model, model_version=query.version, id=query.id)
        for output in outputs:
            shape, raw = encode(map(output.read, results), 1 + len(output.sizes), output.datatype, check_size)
            contents.append(raw)
            if query.inputs.is_column and not output.sizes:
                shape = (*shape, 1)
            response.outputs.add(name=output.name, datatype=output.datatype, shape=shape)
        results.clear()  # they are as large as the contents, or larger
        return form(response, contents)


@contextmanager
def _renamed_fields(task: InferTask) -> Iterator[None]:
    """Rename the fields in errors to those of this protocol."""
    try:
        yield
    except InvalidInputError as error:
        field, name = error.field, error.field.removeprefix("options.")
        if part := _INPUT_FIELD.fullmatch(field):
            field = f"{part[2] or task.inputs[0].name}{part[1] or ''}"
        elif re.split(r"\W", name)[0] in task.parameters:
            field = f"parameters.{name}"
        raise InvalidInputError(field, error.problem) from error


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
