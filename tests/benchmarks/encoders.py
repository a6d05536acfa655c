"""Speed of the encoder families: PyTorch eager, ONNX Runtime by hand, the engine in process, the server through gRPC.

    python tests/benchmarks/encoders.py CHECKPOINT REPOSITORY [--texts FILE | --images FOLDER]
        [--count 128] [--rounds 3] [--in-flight 64] [--tokens 0] [--json FILE]

CHECKPOINT is what training (or base.py) wrote, REPOSITORY holds its bundle. Texts are lines of FILE, each with one word masked;
images are the files of FOLDER. Everything begins with text or file bytes and ends with ranked answers: tokenizing and decoding
are included for all. "direct" is a loop over ONNX Runtime at the batch size and threads that suit it best, all inputs sorted by
length beforehand; "eager" is PyTorch at its best batch size likewise, with logits of the masked places alone
("eager, all logits": of every place, as BertForMaskedLM computes them). Candidates take turns in every round; the table has
medians.
Latency is of one request after the other; "echo" is a call that computes nothing.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
import torch
from echo import METHOD
from grpc import aio

from triptych.v1 import fill_mask_pb2, fill_mask_pb2_grpc, image_classification_pb2, image_classification_pb2_grpc
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.images.decode import decode_image
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.repository.repository import newest_versions
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import BERT, load_bert_checkpoint, load_vit_checkpoint
from triptych_training.checkpoints.folder import read_architecture

TOP_K = 5
BATCHES = (1, 4, 16)
SEARCH_INPUTS = 16  # with which the best settings are found
LATENCY_CALLS = 40
LATENCY_TOKENS = 16  # of the text, about
Run = Callable[[Sequence[Any]], object]


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    precision: str
    candidate: str
    per_second: float
    ratio: float  # to "direct" of the same precision
    settings: str


class TextTask:
    """Fill-mask."""

    def __init__(self, checkpoint: Path, bundle_folder: Path) -> None:
        self.checkpoint = load_bert_checkpoint(checkpoint)
        self.bundle = open_bundle(bundle_folder)
        manifest = self.bundle.manifest_of(TextManifest)
        self.pad, self.mask, self.cls = manifest.tokens.pad, manifest.tokens.mask, manifest.tokens.cls
        self.sep = manifest.tokens.sep

    def engine(self, options: EncoderOptions) -> tuple[Run, Callable[[], None]]:
        model = TextModel("bench", 1, self.bundle, options)
        return lambda texts: model.run(FILL_MASK_TASK, texts, top_k=TOP_K), model.close

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        pieces = [text.split("[MASK]") for text in texts]
        flat = self.checkpoint.tokenizer.encode_batch([part for pair in pieces for part in pair], add_special_tokens=False)
        return [[self.cls, *flat[2 * i].ids, self.mask, *flat[2 * i + 1].ids, self.sep] for i in range(len(texts))]

    def sizes(self, texts: Sequence[str]) -> list[int]:
        return [len(row) for row in self.encode(texts)]

    def arrays(self, texts: Sequence[str]) -> dict[str, Any]:
        rows = self.encode(texts)
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.full((len(rows), lengths.max()), self.pad, np.int32)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        places = np.flatnonzero(ids.reshape(-1) == self.mask)
        segments = np.zeros_like(ids)
        return {"ids": ids, "segments": segments, "lengths": lengths, "places": places, "k": np.array([TOP_K], np.int64)}

    outputs = ("scores", "tokens")

    def eager(self, everywhere: bool) -> Run:
        model: Any = self.checkpoint.model

        def run(texts: Sequence[str]) -> object:
            arrays = self.arrays(texts)
            ids, places = torch.from_numpy(arrays["ids"]).long(), torch.from_numpy(arrays["places"])
            segments = torch.zeros_like(ids)
            wanted = torch.arange(ids.numel()) if everywhere else places
            logits = model(ids, segments, wanted)[0]
            return (logits[places] if everywhere else logits).softmax(-1).topk(TOP_K)

        return run

    def stub(self, channel: Any) -> tuple[Any, Callable[[Any], Any]]:
        stub = fill_mask_pb2_grpc.FillMaskServiceStub(channel)
        return stub.FillMask, lambda text: fill_mask_pb2.FillMaskRequest(contents=[text], top_k=TOP_K)


class ImageTask:
    """Image classification."""

    outputs = ("scores", "labels")

    def __init__(self, checkpoint: Path, bundle_folder: Path) -> None:
        self.checkpoint = load_vit_checkpoint(checkpoint)
        self.bundle = open_bundle(bundle_folder)
        self.spec = self.bundle.manifest.image  # type: ignore[attr-defined]
        self.pool = ThreadPoolExecutor(usable_cpus())

    def engine(self, options: EncoderOptions) -> tuple[Run, Callable[[], None]]:
        model = ImageModel("bench", 1, self.bundle, options)
        return lambda images: model.classify(images, TOP_K), model.close

    def sizes(self, images: Sequence[bytes]) -> list[int]:
        return [1] * len(images)

    def arrays(self, images: Sequence[bytes]) -> dict[str, Any]:
        pixels = list(self.pool.map(lambda data: decode_image(data, self.spec).pixels, images))
        return {"pixels": np.stack(pixels), "k": np.array([TOP_K], np.int64)}

    def eager(self, everywhere: bool) -> Run:
        image = self.checkpoint.image
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (image.mean, image.std))

        def run(images: Sequence[bytes]) -> object:
            pixels = torch.from_numpy(self.arrays(images)["pixels"]).permute(0, 3, 1, 2).float() / 255
            return self.checkpoint.model((pixels - mean) / std).softmax(-1).topk(TOP_K)

        return run

    def stub(self, channel: Any) -> tuple[Any, Callable[[Any], Any]]:
        stub = image_classification_pb2_grpc.ImageClassificationServiceStub(channel)
        return stub.ClassifyImage, lambda data: image_classification_pb2.ClassifyImageRequest(images=[data], top_k=TOP_K)


def batched(run: Run, batch: int, sizes: Sequence[int], workers: int) -> Run:
    """`run` over batches of like length, in several threads."""

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
    """The name of the fastest."""
    times = {name: seconds(run, inputs[:SEARCH_INPUTS]) for name, run in candidates.items()}
    return min(times, key=times.__getitem__)


def direct_candidates(task: Any, precision: str, inputs: Sequence[Any]) -> dict[str, Run]:
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


def eager_candidates(task: Any, everywhere: bool, inputs: Sequence[Any]) -> dict[str, Run]:
    sizes = task.sizes(inputs)
    run = task.eager(everywhere)
    return {f"batch {batch}": batched(run, batch, sizes, 1) for batch in BATCHES}


@contextmanager
def process(*command: str, ready: Callable[[str], str | None]) -> Iterator[str]:
    """A server of its own; gives what `ready` finds in its output."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        found = None
        for line in server.stdout:
            if found := ready(line):
                break
        try:
            yield found or ""
        finally:
            server.terminate()


def server(repository: Path, precision: str, options: Sequence[str]) -> Any:
    command = ["-m", "triptych_cli", "serve", "--models", str(repository), "--host", "127.0.0.1", "--port", "0"]
    return process(
        *command,
        "--metrics-port",
        "0",
        "--precision",
        precision,
        *options,
        ready=lambda line: line.split("ready on ")[1].split()[0] if "ready on" in line else None,
    )


def echo_server() -> Any:
    return process(str(Path(__file__).with_name("echo.py")), ready=lambda line: f"127.0.0.1:{line.strip()}")


async def flood(call: Any, requests: Sequence[Any], in_flight: int) -> float:
    """Seconds for all requests, so many at a time."""
    waiting = iter(requests)

    async def worker() -> None:
        for request in waiting:
            await call(request)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return time.perf_counter() - started


async def one_by_one(call: Any, request: Any, count: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await call(request)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def through_grpc(task: Any, address: str, inputs: Sequence[Any], in_flight: int) -> float:
    async def run() -> float:
        async with aio.insecure_channel(address, [("grpc.max_send_message_length", -1)]) as channel:
            call, make = task.stub(channel)
            return await flood(call, [make(item) for item in inputs], in_flight)

    return asyncio.run(run())


def echo_flood(address: str, payload: bytes, count: int, in_flight: int) -> float:
    async def run() -> float:
        async with aio.insecure_channel(address) as channel:
            return await flood(channel.unary_unary(METHOD), [payload] * count, in_flight)

    return asyncio.run(run())


def latency(task: Any, precision: str, address: str, echo: str, item: Any, threads: int) -> dict[str, float]:
    """Medians in milliseconds, in turns."""
    graph = task.bundle.manifest.precisions[precision]
    session = Session(task.bundle.path(graph.graph), threads, graph.saturation_free)
    arrays = task.arrays([item])

    async def run() -> dict[str, float]:
        async with aio.insecure_channel(address) as channel, aio.insecure_channel(echo) as other:
            call, make = task.stub(channel)
            request = make(item)
            payload = request.SerializeToString()
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
                times["request"].append(await one_by_one(call, request, LATENCY_CALLS // 10))
            return {name: 1000 * statistics.median(values) for name, values in times.items()}

    return asyncio.run(run())


def read_texts(path: Path, count: int, tokens: int, task: TextTask) -> list[str]:
    """Lines with one word masked; of about `tokens` tokens each, or as they are (6 to 120)."""
    rng = random.Random(1)
    words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in words if 8 <= len(line) <= 80]
    rng.shuffle(lines)
    texts = []
    for line in lines:
        chosen = line[: max(4, round(tokens * 0.7))] if tokens else line
        place = rng.randrange(len(chosen))
        texts.append(" ".join([*chosen[:place], "[MASK]", *chosen[place + 1 :]]))
    sizes = task.sizes(texts[: 4 * count])
    low, high = (tokens - 8, tokens + 8) if tokens else (6, 120)
    return [text for text, size in zip(texts, sizes, strict=False) if low <= size <= high][:count]


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
    task: Any
    inputs: list[Any]
    if read_architecture(checkpoint) == BERT:
        assert texts, "--texts is missing"
        task = TextTask(checkpoint, folder)
        inputs = read_texts(texts, count, tokens, task)
    else:
        assert images, "--images is missing"
        task = ImageTask(checkpoint, folder)
        inputs = [path.read_bytes() for path in sorted(images.rglob("*")) if path.is_file()][:count]
        inputs = (inputs * (count // len(inputs) + 1))[:count]
    results: list[Result] = []
    latencies: dict[str, dict[str, float]] = {}
    with torch.inference_mode(), echo_server() as echo:
        for precision in precisions.split(","):
            plan = Plan(task, inputs, rounds, in_flight, repository, echo, serve_options.split())
            speeds, waits = measure(plan, precision)
            results += speeds
            latencies |= waits
    report(results, latencies)
    if json_file:
        content = {"results": [asdict(result) for result in results], "latency_ms": latencies}
        json_file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Plan:
    """What is measured, and against what."""

    task: Any
    inputs: Sequence[Any]
    rounds: int
    in_flight: int
    repository: Path
    echo: str  # address
    serve_options: Sequence[str]


def measure(plan: Plan, precision: str) -> tuple[list[Result], dict[str, dict[str, float]]]:
    """One precision: speed of every candidate, and latencies."""
    task, inputs = plan.task, plan.inputs
    pools = {"direct": direct_candidates(task, precision, inputs), "eager": eager_candidates(task, False, inputs)}
    if isinstance(task, TextTask):
        pools["eager, all logits"] = eager_candidates(task, True, inputs)
    chosen = {name: best(pool, inputs) for name, pool in pools.items()}
    runs: dict[str, Run] = {name: pool[chosen[name]] for name, pool in pools.items()}
    runs["engine"], close = task.engine(EncoderOptions(precision))
    times: dict[str, list[float]] = {}
    latencies = {}
    payload = task.stub(grpc.insecure_channel(plan.echo))[1](inputs[0]).SerializeToString()
    lone = min(zip(task.sizes(inputs), inputs, strict=True), key=lambda pair: abs(pair[0] - LATENCY_TOKENS))[1]
    with server(plan.repository, precision, plan.serve_options) as address:
        runs["gRPC"] = lambda items: through_grpc(task, address, items, plan.in_flight)
        runs["gRPC"](inputs[:8])
        for _ in range(plan.rounds):
            for name, run in runs.items():
                times.setdefault(name, []).append(seconds(run, inputs))
            times.setdefault("echo", []).append(echo_flood(plan.echo, payload, len(inputs), plan.in_flight))
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
