"""A server of the Open Inference Protocol with other tensors than Triptych's, on a real port."""

# ruff: noqa: N802 - a servicer's methods have the names of its RPCs.

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio

from triptych.inference import open_inference_pb2 as pb
from triptych.inference import open_inference_pb2_grpc

DECOUPLED_POLICY = b"\x9a\x01\x02\x08\x01"  # field 19 of Triton's ModelConfig: a message whose field 1 is true
Metadata = pb.ModelMetadataResponse.TensorMetadata
OutputTensor = pb.ModelInferResponse.InferOutputTensor


def metadata(name: str, *inputs: tuple[str, str, list[int]]) -> pb.ModelMetadataResponse:
    tensors = [Metadata(name=tensor, datatype=datatype, shape=shape) for tensor, datatype, shape in inputs]
    return pb.ModelMetadataResponse(name=name, versions=["1", "2"], platform="fake", inputs=tensors)


# Metadata and maximum batch size; inputs of models that batch begin with -1, as with Triton.
MODELS = {
    "image": (metadata("image", ("pixels", "FP16", [-1, 3, -1, -1])), 8),
    "ranker": (metadata("ranker", ("ids", "INT64", [-1, 4]), ("weights", "BF16", [-1, 2]), ("flags", "BOOL", [-1, 2])), 4),
    "single": (metadata("single", ("numbers", "UINT8", [2, 2])), 0),
    "echo": (metadata("echo", ("prompt", "BYTES", [-1, 1])), 16),
    "words": (metadata("words", ("prompt", "BYTES", [1])), 0),
    "chat": (metadata("chat", ("prompt", "BYTES", [1]), ("max_tokens", "INT32", [1])), 0),
}
TIMES = {  # nanoseconds per request
    **{"success": 10_000_000, "queue": 1_000_000, "compute_input": 2_000_000},
    **{"compute_infer": 6_000_000, "compute_output": 500_000},
}


class FakeV2(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Returns the inputs as outputs, and records the requests.

    Args:
        extensions: With configurations, statistics and an index, as Triton; otherwise only the protocol's core.
        loaded: The models in the index.
    """

    def __init__(self, extensions: bool = True, loaded: tuple[str, ...] = tuple(MODELS)) -> None:
        self.extensions, self.loaded = extensions, loaded
        self.requests: list[pb.ModelInferRequest] = []
        self.metadata: list[dict[str, Any]] = []

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return pb.ModelReadyResponse(ready=request.name in MODELS)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return pb.ServerMetadataResponse(name="fake", version="2.0")

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        return MODELS[request.name][0]

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        await self._check_extensions(context)
        config = pb.ModelConfig(name=request.name, backend="fake", max_batch_size=MODELS[request.name][1])
        if request.name in ("words", "chat"):
            config.MergeFromString(DECOUPLED_POLICY)
        return pb.ModelConfigResponse(config=config)

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        await self._check_extensions(context)
        one = pb.RepositoryIndexResponse.ModelIndex
        return pb.RepositoryIndexResponse(models=[one(name=name, version="2", state="READY") for name in self.loaded])

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        await self._check_extensions(context)
        count = len(self.requests)
        times = {name: pb.StatisticDuration(count=count, ns=count * ns) for name, ns in TIMES.items()}
        stats = pb.InferStatistics(fail=pb.StatisticDuration(count=3), cache_hit=pb.StatisticDuration(count=2 * count), **times)
        return pb.ModelStatisticsResponse(
            model_stats=[pb.ModelStatistics(name=request.name, version="2", inference_stats=stats)]
        )

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if request.raw_input_contents and b"refuse" in request.raw_input_contents[0]:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "such a\nprompt")
        outputs = [OutputTensor(name=f"{one.name}_back", datatype=one.datatype, shape=one.shape) for one in request.inputs]
        raw = request.raw_input_contents
        return pb.ModelInferResponse(model_name=request.model_name, model_version="2", outputs=outputs, raw_output_contents=raw)

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[pb.ModelStreamInferResponse]:
        async for request in requests:
            self.requests.append(request)
            for response in word_responses(request):
                yield response

    async def _check_extensions(self, context: Any) -> None:
        if not self.extensions:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")


def word_responses(request: pb.ModelInferRequest) -> Iterator[pb.ModelStreamInferResponse]:
    """Yield one response per word, in contents that are not raw, and an empty one at the end."""
    text = request.raw_input_contents[0][4:].decode()
    if text == "refuse":
        yield pb.ModelStreamInferResponse(error_message="such a\nprompt")
        return
    for word in text.split():
        contents = pb.InferTensorContents(bytes_contents=[f"{word.upper()} ".encode()])
        output = OutputTensor(name="word", datatype="BYTES", shape=[1], contents=contents)
        yield pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(model_name=request.model_name, outputs=[output]))
    yield pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(model_name=request.model_name))


@asynccontextmanager
async def running(fake: FakeV2) -> AsyncIterator[str]:
    """Run a server for the duration of the block; yield its address."""
    server = aio.server()
    open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
