"""ModelInfer and ModelStreamInfer."""

from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.repository.registry import Registry
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.rpc.status import public_error, status_of
from triptych_serving.services.oip.asking import Asking, asking_from
from triptych_serving.services.oip.parameters import EMPTY_FINAL, flag_from
from triptych_serving.services.oip.task import Calls
from triptych_serving.services.translation_calls import TextPiece, TranslationResult

FINAL = "triton_final_response"


class Inference:
    """Answers requests.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        calls: do the work.
        pool: threads for large responses.
    """

    def __init__(self, registry: Callable[[], Registry], calls: Calls, pool: Executor) -> None:
        self._registry = registry
        self._calls = calls
        self._offload = Offload(pool)

    async def answer(self, request: pb.ModelInferRequest, context: GrpcContext) -> pb.ModelInferResponse:
        """One request, one response.

        Raises:
            ServingError: whatever kept it from being answered.
        """
        asking = asking_from(request, self._registry)
        return await self._response(asking, await self._results(asking, context))

    async def stream(self, request: pb.ModelInferRequest, context: GrpcContext) -> AsyncGenerator[pb.ModelStreamInferResponse]:
        """All responses to one request of a stream; an error is a response, too."""
        try:
            async with aclosing(self._responses(request, context)) as responses:
                async for response, is_final in responses:
                    response.parameters[FINAL].bool_param = is_final
                    yield pb.ModelStreamInferResponse(infer_response=response)
        except Exception as error:  # whatever it is, the stream's other requests must be answered
            yield _failure(request, error)

    async def _responses(
        self, request: pb.ModelInferRequest, context: GrpcContext
    ) -> AsyncGenerator[tuple[pb.ModelInferResponse, bool]]:
        """Pieces, then the whole result. Who asked for an empty last response takes no result from the last one."""
        empty_final = flag_from(request.parameters, EMPTY_FINAL)
        asking = asking_from(request, self._registry, streams=True)
        if asking.task.stream is None:
            yield await self._response(asking, await self._results(asking, context)), True
            return
        results: list[Any] = []
        async with aclosing(self._pieces(asking, context, results)) as pieces:
            async for piece in pieces:
                yield piece, False
        whole = await self._response(asking, results)
        if not empty_final:
            yield whole, True
            return
        if whole.outputs:
            yield whole, False
        yield asking.response(), True

    async def _pieces(self, asking: Asking, context: GrpcContext, results: list[Any]) -> AsyncGenerator[pb.ModelInferResponse]:
        """Those that are wanted; `results` has all results in the end."""
        task, question = asking.task, asking.question
        wanted = [output for output in question.wanted if output in task.pieces]
        if task.stream is None or not wanted:
            results += await self._results(asking, context)
            return
        done: dict[int, Any] = {}
        with asking.named():
            async with aclosing(task.stream(self._calls, question, context)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        yield asking.response(wanted, [event])
                    elif isinstance(event, TranslationResult):
                        done[event.index] = event.output
        results += [done[index] for index in sorted(done)]

    async def _results(self, asking: Asking, context: GrpcContext) -> Sequence[Any]:
        with asking.named():
            return await asking.task.answer(self._calls, asking.question, context)

    async def _response(self, asking: Asking, results: Sequence[Any]) -> pb.ModelInferResponse:
        outputs = [output for output in asking.question.wanted if output not in asking.task.pieces]
        size = len(results) * sum(output.weight for output in outputs)
        return await self._offload.run(size, asking.response, outputs, results)


def _failure(request: pb.ModelInferRequest, error: Exception) -> pb.ModelStreamInferResponse:
    """The message is all that this protocol's clients hand on, so the status is in it."""
    request_id = current_call.get().request_id
    shown = public_error(error, request_id)
    response = pb.ModelInferResponse(model_name=request.model_name, model_version=request.model_version, id=request.id)
    response.parameters[FINAL].bool_param = True
    message = f"{shown.status}: {status_of(shown, request_id).message}"
    return pb.ModelStreamInferResponse(error_message=message, infer_response=response)
