"""Speed of BERT and ViT on the CPU: PyTorch eager, ONNX Runtime alone, the engine in process, the server through gRPC.

    python tests/benchmarks/encoders.py CHECKPOINT REPOSITORY [--texts FILE | --images FOLDER]
        [--count 128] [--rounds 3] [--in-flight 64] [--tokens 0] [--json FILE]

CHECKPOINT is the output of training (or base.py); REPOSITORY contains its bundle. Texts are lines of FILE, each with one word
masked; images are the files of FOLDER. Every run starts with texts or file bytes and ends with ranked results, including
tokenization and image decoding. "direct" is a loop over ONNX Runtime at the best batch size and threads, with all inputs sorted
by length; "eager" is PyTorch at its best batch size, with the logits of masked positions alone ("eager, all logits": of every
position, as BertForMaskedLM computes them). Candidates take turns in every round; the table has medians.
Latency is of one request at a time; "echo" is a call that computes nothing.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from candidates.encoder_tasks import EncoderTask, ImageTask, Run, TextTask, method, read_images, read_texts, request
from echo import METHOD
from grpc import aio
from report.tables import write_json
from servers.encoder_load import send_all
from servers.start import script_server

from triptych_bench.server.process import TriptychServer
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.repository.repository import newest_versions
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.folder import TOKENIZER

BATCHES = (1, 4, 16)
SEARCH_INPUTS = 16  # for the search of the best settings
LATENCY_CALLS = 40
LATENCY_TOKENS = 16  # of the text, approximately


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    precision: str
    candidate: str
    per_second: float
    ratio: float  # to "direct" of the same precision
    settings: str


def batched(run: Run, batch: int, sizes: Sequence[int], workers: int) -> Run:
    """Return a run over batches of similar length, in several threads."""

    def whole(inputs: Sequence[Any]) -> object:
        chosen = [inputs[i] for i in sorted(range(len(inputs)), key=lambda i: sizes[i])]
        parts = [chosen[start : start + batch] for start in range(0, len(chosen), batch)]
        if workers == 1:
            return [run(part) for part in parts]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(run, parts))

    return whole


def seconds(run: Run, inputs: Sequence[Any]) -> float:
    started = time.perf_counter()
    run(inputs)
    return time.perf_counter() - started


def best(candidates: dict[str, Run], inputs: Sequence[Any]) -> str:
    """Return the name of the fastest candidate."""
    times = {name: seconds(run, inputs[:SEARCH_INPUTS]) for name, run in candidates.items()}
    return min(times, key=times.__getitem__)


def direct_candidates(task: EncoderTask, precision: str, inputs: Sequence[Any]) -> dict[str, Run]:
    graph = task.bundle.manifest.precisions[precision]
    sizes = task.sizes(inputs)
    candidates = {}
    for threads, workers in {(usable_cpus(), 1), (1, usable_cpus())}:
        session = Session(task.bundle.path(graph.graph), threads, graph.saturation_free)

        def run(part: Sequence[Any], session: Session = session) -> object:
            return session.run(task.arrays(part), task.outputs)

        run(inputs[:2])
        for batch in BATCHES:
            candidates[f"batch {batch}, {threads} threads x {workers}"] = batched(run, batch, sizes, workers)
    return candidates


def eager_candidates(task: EncoderTask, everywhere: bool, inputs: Sequence[Any]) -> dict[str, Run]:
    sizes = task.sizes(inputs)
    run = task.eager(everywhere)
    return {f"batch {batch}": batched(run, batch, sizes, 1) for batch in BATCHES}


async def one_by_one(call: Any, request: Any, count: int) -> float:
    """Return the median seconds of a call."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await call(request)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def through_grpc(task: EncoderTask, address: str, inputs: Sequence[Any], in_flight: int) -> None:
    """Send one request per input, with a fixed number in flight."""
    requests = [request(task.kind, [item]) for item in inputs]
    asyncio.run(send_all(address, partial(method, task.kind), requests, in_flight))


def echo_all(address: str, payload: bytes, count: int, in_flight: int) -> None:
    """Send payloads to the echo server, with a fixed number in flight."""
    asyncio.run(send_all(address, lambda channel: channel.unary_unary(METHOD), [payload] * count, in_flight))


def latency(task: EncoderTask, precision: str, address: str, echo: str, item: Any, threads: int) -> dict[str, float]:
    """Return medians in milliseconds, measured in turns."""
    graph = task.bundle.manifest.precisions[precision]
    session = Session(task.bundle.path(graph.graph), threads, graph.saturation_free)
    arrays = task.arrays([item])

    async def run() -> dict[str, float]:
        async with aio.insecure_channel(address) as channel, aio.insecure_channel(echo) as other:
            call, one = method(task.kind, channel), request(task.kind, [item])
            payload = one.SerializeToString()
            back: Any = other.unary_unary(METHOD)
            times: dict[str, list[float]] = {"bare session": [], "echo": [], "request": []}
            for _ in range(10):
                bare = []
                for _ in range(LATENCY_CALLS // 10):
                    started = time.perf_counter()
                    session.run(arrays, task.outputs)
                    bare.append(time.perf_counter() - started)
                times["bare session"].append(statistics.median(bare))
                times["echo"].append(await one_by_one(back, payload, LATENCY_CALLS // 10))
                times["request"].append(await one_by_one(call, one, LATENCY_CALLS // 10))
            return {name: 1000 * statistics.median(values) for name, values in times.items()}

    return asyncio.run(run())


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("repository", type=click.Path(path_type=Path))
@click.option("--texts", type=click.Path(path_type=Path), default=None)
@click.option("--images", type=click.Path(path_type=Path), default=None)
@click.option("--count", default=128, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--in-flight", default=64, show_default=True)
@click.option("--tokens", default=0, show_default=True, help="All texts of about this length; 0: as they are.")
@click.option("--precisions", default="fp32,int8", show_default=True)
@click.option("--serve-options", default="", help="More of `triptych serve`.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(  # noqa: PLR0917 - click passes them by name
    checkpoint: Path,
    repository: Path,
    texts: Path | None,
    images: Path | None,
    count: int,
    rounds: int,
    in_flight: int,
    tokens: int,
    precisions: str,
    serve_options: str,
    json_file: Path | None,
) -> None:
    folder = newest_versions(repository)[0].folder
    task: EncoderTask
    inputs: list[Any]
    if (checkpoint / TOKENIZER).exists():
        assert texts, "--texts is missing"
        task = TextTask(checkpoint, folder)
        inputs = read_texts(texts, count, tokens, task)
    else:
        assert images, "--images is missing"
        task = ImageTask(checkpoint, folder)
        inputs = read_images(images, count)
    results: list[Result] = []
    latencies: dict[str, dict[str, float]] = {}
    with torch.inference_mode(), script_server("echo.py") as echo:
        for precision in precisions.split(","):
            plan = Plan(task, inputs, rounds, in_flight, repository, echo.address, serve_options.split())
            speeds, waits = measure(plan, precision)
            results += speeds
            latencies |= waits
    report(results, latencies)
    write_json(json_file, {"latency_ms": latencies}, results)


@dataclass(frozen=True)
class Plan:
    """Inputs and servers of the benchmark."""

    task: EncoderTask
    inputs: Sequence[Any]
    rounds: int
    in_flight: int
    repository: Path
    echo: str  # address
    serve_options: Sequence[str]


def measure(plan: Plan, precision: str) -> tuple[list[Result], dict[str, dict[str, float]]]:
    """Return speeds and latencies of all candidates in a precision."""
    task, inputs = plan.task, plan.inputs
    pools = {"direct": direct_candidates(task, precision, inputs), "eager": eager_candidates(task, False, inputs)}
    if isinstance(task, TextTask):
        pools["eager, all logits"] = eager_candidates(task, True, inputs)
    chosen = {name: best(pool, inputs) for name, pool in pools.items()}
    runs: dict[str, Run] = {name: pool[chosen[name]] for name, pool in pools.items()}
    runs["engine"], close = task.engine(EncoderOptions(precision))
    times: dict[str, list[float]] = {}
    latencies = {}
    payload = request(task.kind, inputs[:1]).SerializeToString()
    lone = min(zip(task.sizes(inputs), inputs, strict=True), key=lambda pair: abs(pair[0] - LATENCY_TOKENS))[1]
    with TriptychServer(["--models", str(plan.repository), "--precision", precision, *plan.serve_options]) as server:
        address = server.address
        runs["gRPC"] = lambda items: through_grpc(task, address, items, plan.in_flight)
        runs["gRPC"](inputs[:8])
        for _ in range(plan.rounds):
            for name, run in runs.items():
                times.setdefault(name, []).append(seconds(run, inputs))
            times.setdefault("echo", []).append(
                seconds(lambda items: echo_all(plan.echo, payload, len(items), plan.in_flight), inputs)
            )
        for threads in sorted({1, usable_cpus()}):
            name = f"{precision}, bare session with {threads} threads"
            latencies[name] = latency(task, precision, address, plan.echo, lone, threads)
    close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    speeds = [
        Result(precision, name, len(inputs) / taken, medians["direct"] / taken, chosen.get(name, ""))
        for name, taken in medians.items()
    ]
    return speeds, latencies


def report(results: Sequence[Result], latencies: dict[str, dict[str, float]]) -> None:
    for r in results:
        click.echo(f"{r.precision:5} {r.candidate:18} {r.per_second:9.1f}/s  {r.ratio:6.2f} x direct  {r.settings}")
    for name, values in latencies.items():
        rest = values["request"] - values["bare session"] - values["echo"]
        words = ", ".join(f"{what} {value:.2f} ms" for what, value in values.items())
        click.echo(f"latency, {name}: {words}; left over {rest:.2f} ms")


if __name__ == "__main__":
    main()
