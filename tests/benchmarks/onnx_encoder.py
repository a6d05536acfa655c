"""An imported ONNX text encoder in Triptych beside a plain server of ONNX Runtime and grpc.aio.

    python tests/benchmarks/onnx_encoder.py MODEL.onnx CHECKPOINT --texts FILE [--rounds 5] [--count 400]
    python tests/benchmarks/onnx_encoder.py MODEL.onnx CHECKPOINT --texts FILE --mlserver /tmp/mlserver/bin/mlserver
    python tests/benchmarks/onnx_encoder.py MODEL.onnx CHECKPOINT --texts FILE --compare

CHECKPOINT has config.json and tokenizer.json; texts are lines of FILE, up to the first tab. Both servers get the same texts in
closed loops of 1, 16 and 64 requests in flight and take turns in every round; the table has medians. The plain server runs one
text at a time in a pool of threads, as examples of ONNX Runtime do. --mlserver adds MLServer with the same code as its runtime,
from an environment of its own (`pip install mlserver onnxruntime tokenizers`). MLServer 1.7.1 runs it in its own process: with
the default of one parallel worker it does not start, since that worker asks uvloop for an event loop which uvloop 0.22 and
later no longer make ("There is no current event loop in thread 'MainThread'"). --compare prints how close the
file's vectors are to those of the checkpoint's own weights in fp32.
"""

import asyncio
import json
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
from echo import serve
from grpc import aio
from servers.plain_encoder import PlainEncoder
from servers.rates import median_loops
from servers.start import script_server

from triptych.inference import open_inference_pb2, open_inference_pb2_grpc
from triptych.v1 import embedding_pb2, embedding_pb2_grpc
from triptych_bench.server.process import ServerProcess, TriptychServer
from triptych_embedded.models import open_registry
from triptych_embedded.request import ModelChoice
from triptych_export.exporter import ExportOptions, export
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.runtime.cpu_info import usable_cpus

SERVICE, METHOD = "plain.Encoder", "Embed"
IN_FLIGHT = (1, 16, 64)
NAME, ORIGINAL = "encoder", "original"
PLAIN, RUNTIME = "plain_encoder", "mlserver_encoder"  # files that MLServer imports
SERVERS = Path(__file__).parent / "servers"


async def serve_plain(model: str, folder: str) -> None:
    """Run the plain server."""
    encoder, pool = PlainEncoder(model, folder), ThreadPoolExecutor(usable_cpus())

    async def embed(request: bytes, _: Any) -> bytes:
        return (await asyncio.get_running_loop().run_in_executor(pool, encoder.embed, request.decode())).tobytes()

    handlers = {METHOD: grpc.unary_unary_rpc_method_handler(embed)}
    await serve(grpc.method_handlers_generic_handler(SERVICE, handlers))


def mlserver(program: str, model: str, checkpoint: str, folder: Path) -> ServerProcess:
    """Return MLServer, whose settings are written into a folder; its log goes to standard error."""
    for name in (PLAIN, RUNTIME):
        shutil.copy(SERVERS / f"{name}.py", folder)
    extra = {"folder": str(Path(checkpoint).absolute()), "threads": usable_cpus()}
    parameters = {"uri": str(Path(model).absolute()), "extra": extra}
    settings = {"name": NAME, "implementation": f"{RUNTIME}.Encoder", "parameters": parameters}
    (folder / "model-settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "settings.json").write_text(json.dumps({"parallel_workers": 0, "host": "127.0.0.1"}), encoding="utf-8")
    command = ["sh", "-c", 'exec "$0" start "$1" >&2', program, str(folder)]
    return ServerProcess(command, re.compile(r"gRPC server running on http://(\S+)"))


async def measure(own: str, plain: str, peer: str, texts: list[str], rounds: int, count: int) -> None:
    """Print rates and latencies of the servers; `peer` is MLServer's address or empty."""
    async with (
        aio.insecure_channel(own) as first,
        aio.insecure_channel(plain) as second,
        aio.insecure_channel(peer or plain) as third,
    ):
        stub, call = embedding_pb2_grpc.EmbeddingServiceStub(first), second.unary_unary(f"/{SERVICE}/{METHOD}")
        infer = open_inference_pb2_grpc.GRPCInferenceServiceStub(third).ModelInfer
        sends: dict[str, Any] = {
            "Triptych": lambda text: stub.EmbedText(embedding_pb2.EmbedTextRequest(contents=[text])),
            "plain": lambda text: call(text.encode()),
        }
        if peer:
            sends["MLServer"] = lambda text: infer(mlserver_request(text))
        for in_flight in IN_FLIGHT:
            medians = await median_loops(sends, rounds, count, in_flight, texts)
            for name, (rate, p99) in medians.items():
                ratios = f"{rate / medians['plain'][0]:6.2f} x rate, {p99 / medians['plain'][1]:.2f} x p99"
                click.echo(f"{in_flight:3} in flight  {name:9}{rate:8.0f}/s  p99 {p99:7.1f} ms {ratios}")


def mlserver_request(text: str) -> open_inference_pb2.ModelInferRequest:
    """Return the request for the vector of a text."""
    tensor = open_inference_pb2.ModelInferRequest.InferInputTensor(name="text", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text.encode())
    return open_inference_pb2.ModelInferRequest(model_name=NAME, inputs=[tensor])


def compare(repository: Path, texts: list[str]) -> None:
    """Print the cosines of two models' vectors, and how much the similarities of neighbouring texts change."""
    vectors = []
    for name in (NAME, ORIGINAL):
        with open_registry(ModelChoice(repository, name), EMBEDDING_TASK.name) as registry:
            found = registry.find_text(ModelSelector(name), EMBEDDING_TASK.name).run(EMBEDDING_TASK, texts, normalize=True)
            vectors.append(np.array([one.values for one in found]))
    cosines = (vectors[0] * vectors[1]).sum(1)
    pairs = [(each[0::2] * each[1::2]).sum(1) for each in vectors]
    change = np.abs(pairs[0] - pairs[1])
    click.echo(f"{len(texts):,} texts: cosine mean {cosines.mean():.5f}, least {cosines.min():.5f}")
    click.echo(f"{len(change):,} pairs: similarity changes by {change.mean():.5f} on average, at most {change.max():.5f}")


@click.command()
@click.argument("model", type=click.Path(exists=True))
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False))
@click.option("--texts", "file", type=click.File(encoding="utf-8"), required=False)
@click.option("--compare", "compares", is_flag=True)
@click.option("--mlserver", "program", default="", help="MLServer's program, to be compared too.")
@click.option("--rounds", default=5)
@click.option("--count", default=400)
@click.option("--serve-plain", is_flag=True, hidden=True)
def main(
    model: str, checkpoint: str, file: Any, compares: bool, program: str, rounds: int, count: int, serve_plain: bool
) -> None:
    """Print the comparison."""
    if serve_plain:
        asyncio.run(serve_plain(model, checkpoint))
        return
    texts = [text for line in file or ["The house is small.\n"] if (text := line.partition("\t")[0].strip())][:2_000]
    texts = texts[: len(texts) // 2 * 2]
    with tempfile.TemporaryDirectory() as folder:
        options = ExportOptions(Path(folder), NAME, config_from=Path(checkpoint))
        export(model, options, click.echo)
        if compares:
            export(checkpoint, ExportOptions(Path(folder), ORIGINAL, precisions=["fp32"]), click.echo)
            compare(Path(folder), texts)
            return
        with ExitStack() as stack, tempfile.TemporaryDirectory() as settings:
            own = stack.enter_context(TriptychServer(["--models", folder])).address
            plain = stack.enter_context(script_server(Path(__file__).name, model, checkpoint, "--serve-plain")).address
            started = [stack.enter_context(mlserver(program, model, checkpoint, Path(settings)))] if program else []
            asyncio.run(measure(own, plain, "".join(server.address for server in started), texts, rounds, count))


if __name__ == "__main__":
    main()
