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
from pathlib import Path
from typing import Any

import click
import torch
from candidates.encoder_tasks import (
    EncoderTask,
    ImageTask,
    Run,
    TextTask,
    encoder_requests,
    method,
    read_images,
    read_texts,
    request,
)
from echo import METHOD
from grpc import aio
from report.tables import write_json
from servers.load import send_all
from servers.start import script_server

from triptych_bench.load.loops import run_closed_loop
from triptych_bench.server.process import TriptychServer
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.repository.repository import newest_versions
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.folder import TOKENIZER

BATCHES = (1, 4, 16)
SEARCH_INPUTS = 16  # for the search of the best settings
LATENCY_CALLS, LATENCY_TURNS = 4, 10
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


def latency(task: EncoderTask, precision: str, address: str, echo: str, item: Any, threads: int) -> dict[str, float]:
    """Return medians in milliseconds, measured in turns."""
    graph = task.bundle.manifest.precisions[precision]
    session = Session(task.bundle.path(graph.graph), threads, graph.saturation_free)
    arrays, one = task.arrays([item]), request(task.kind, [item])

    async def run() -> dict[str, float]:
        async with aio.insecure_channel(address) as channel, aio.insecure_channel(echo) as other:
            back: Any = other.unary_unary(METHOD)
            calls = {"echo": (back, one.SerializeToString()), "request": (method(task.kind, channel), one)}
            times: dict[str, list[float]] = {name: [] for name in ("bare session", *calls)}
            for _ in range(LATENCY_TURNS):
                bare = [seconds(lambda _: session.run(arrays, task.outputs), ()) for _ in range(LATENCY_CALLS)]
                times["bare session"].append(statistics.median(bare))
                for name, (call, message) in calls.items():
                    log = await run_closed_loop(call, [message], 1, count=LATENCY_CALLS)
                    times[name].append(statistics.median(record.latency for record in log.records))
            return {name: 1000 * statistics.median(values) for name, values in times.items()}

    return asyncio.run(run())


def echo_method(channel: aio.Channel) -> Any:
    return channel.unary_unary(METHOD)


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
def main(checkpoint: Path, texts: Path | None, images: Path | None, count: int, tokens: int, **given: Any) -> None:
    precisions, json_file = given.pop("precisions").split(","), given.pop("json_file")
    given["serve_options"] = given["serve_options"].split()
    folder = newest_versions(given["repository"])[0].folder
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
        for precision in precisions:
            speeds, waits = measure(Plan(task, inputs, echo=echo.address, **given), precision)
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
        runs["gRPC"] = lambda items: send_all(address, *encoder_requests(task.kind, items, 1), plan.in_flight)
        runs["echo"] = lambda items: send_all(plan.echo, echo_method, [payload] * len(items), plan.in_flight)
        runs["gRPC"](inputs[:8])
        for _ in range(plan.rounds):
            for name, run in runs.items():
                times.setdefault(name, []).append(seconds(run, inputs))
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
