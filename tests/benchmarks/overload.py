"""Goodput of a server that receives five times as many requests as it can process.

    python tests/benchmarks/overload.py REPOSITORY [--task translation|embedding|image] [--model NAME] [--texts N] [--length N]
        [--factor 5] [--seconds 120] [--rounds 1] [--deadline 2] [--in-flight 16] [--cpus 2] [--json FILE] [-- --slots 32 ...]

The server runs on the first `--cpus` CPUs; this process generates the load on the others, if there are any. "generator late"
shows whether the generator is the limit. On shared CPUs sending and rejecting a call have a cost, so use requests that keep the
server busy for at least 50 ms: many long texts.

Capacity is the throughput of a closed loop of `--in-flight` requests without deadlines, before and after the overload of each
round. Overload is Poisson arrivals at `--factor` times the capacity before; every call has the deadline, and rejected calls are
not sent again. Goodput counts the responses within the deadline. A translation request is `--texts` texts of 20 words with
exactly `--length` tokens to decode each; an embedding request, texts of `--length` words; an image request, JPEGs of `--length`
pixels a side.

Recovery: after the last arrival requests are sent one after the other; recovery ends with the last one that takes more than
twice the 99th percentile of such requests before the overload.
"""

import asyncio
import io
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
import psutil
from grpc import aio
from PIL import Image
from servers import cpus as cpu_sets

from triptych.v1 import (
    embedding_pb2,
    embedding_pb2_grpc,
    image_classification_pb2,
    image_classification_pb2_grpc,
    translation_pb2,
    translation_pb2_grpc,
)
from triptych_bench.load.loops import poisson
from triptych_bench.server.process import ServerProcess, TriptychServer

WORDS = ("man", "woman", "dog", "runs", "jumps", "over", "red", "blue", "house", "street", "near", "with", "plays", "guitar")
SOURCE_WORDS = 20
CHANNELS = 4  # as many clients
WARM_UP_SECONDS = 3.0
RAMP_SECONDS = 2.0  # of a closed loop, until it is at its speed
CALM_SECONDS = 5.0  # of one request after the other, before and after
PATIENCE_SECONDS = 600.0  # of the closed loop
MEMORY_SECONDS = 1.0  # between two looks
SETTLED = 0.25  # of the overload: by then buffers have grown
SLOW = 2.0  # times the calm 99th percentile: not recovered yet
Call = Callable[[float], Awaitable[object]]  # with a timeout in seconds


@dataclass(frozen=True)
class Workload:
    """Method and requests of a task."""

    stub: Callable[[aio.Channel], Callable[..., Any]]
    request: Callable[[random.Random, str, int, int], Any]  # random numbers, model, texts, length


def _sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def _translation(rng: random.Random, model: str, texts: int, length: int) -> Any:
    off = translation_pb2.SPLIT_SENTENCES_OFF
    options = translation_pb2.DecodingOptions(beam_size=1, min_length=length, max_length=length, split_sentences=off)
    return translation_pb2.TranslateRequest(
        contents=[_sentence(rng, SOURCE_WORDS) for _ in range(texts)], model=model, options=options
    )


def _embedding(rng: random.Random, model: str, texts: int, length: int) -> Any:
    return embedding_pb2.EmbedTextRequest(contents=[_sentence(rng, length) for _ in range(texts)], model=model)


def _image(rng: random.Random, model: str, texts: int, length: int) -> Any:
    return image_classification_pb2.ClassifyImageRequest(images=[_jpeg(rng, length) for _ in range(texts)], model=model)


def _jpeg(rng: random.Random, side: int) -> bytes:
    file = io.BytesIO()
    Image.frombytes("RGB", (side, side), rng.randbytes(3 * side * side)).save(file, "JPEG")
    return file.getvalue()


TASKS = {
    "translation": Workload(lambda channel: translation_pb2_grpc.TranslationServiceStub(channel).Translate, _translation),
    "embedding": Workload(lambda channel: embedding_pb2_grpc.EmbeddingServiceStub(channel).EmbedText, _embedding),
    "image": Workload(
        lambda channel: image_classification_pb2_grpc.ImageClassificationServiceStub(channel).ClassifyImage, _image
    ),
}


@dataclass
class Overload:
    """Outcomes of the calls, in seconds."""

    seconds: float
    rate: float  # calls sent per second
    latencies: list[float] = field(default_factory=list)  # of the responses
    refusals: list[float] = field(default_factory=list)  # latencies of rejected calls
    codes: dict[str, int] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)  # delays of the load generator
    memory: list[float] = field(default_factory=list)  # MB, once a second
    cpu_seconds: float = 0.0  # of the server

    @property
    def goodput(self) -> float:
        return len(self.latencies) / self.seconds


@dataclass(frozen=True)
class Round:
    """Capacity, overload, and capacity again."""

    capacity_before: float  # responses per second
    capacity_after: float
    cpu_per_answer: float  # of the server, in both closed loops
    overload: Overload
    calm_p99: float  # seconds, one request after the other
    recovery: float  # seconds

    @property
    def ratio(self) -> float:
        """Ratio of goodput to capacity."""
        return self.overload.goodput / ((self.capacity_before + self.capacity_after) / 2)

    @property
    def cpu_ratio(self) -> float:
        """The same ratio per CPU second of the server, which other work on the machine does not affect."""
        return len(self.overload.latencies) * self.cpu_per_answer / self.overload.cpu_seconds

    @property
    def memory_growth(self) -> float:
        """Growth in MB after the first part of the overload."""
        memory = self.overload.memory
        return memory[-1] - memory[int(len(memory) * SETTLED)]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--task", type=click.Choice(list(TASKS)), default="translation")
@click.option("--model", default="")
@click.option("--texts", type=int, default=12)
@click.option("--length", type=int, default=30)
@click.option("--factor", type=float, default=5.0)
@click.option("--seconds", type=float, default=120.0)
@click.option("--rounds", type=int, default=1)
@click.option("--deadline", type=float, default=2.0)
@click.option("--in-flight", type=int, default=16)
@click.option("--capacity-seconds", type=float, default=15.0)
@click.option("--cpus", type=int, default=2)
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
@click.argument("serve", nargs=-1, type=click.UNPROCESSED)
def main(  # noqa: PLR0917
    repository: Path,
    task: str,
    model: str,
    texts: int,
    length: int,
    factor: float,
    seconds: float,
    rounds: int,
    deadline: float,
    in_flight: int,
    capacity_seconds: float,
    cpus: int,
    json_file: Path | None,
    serve: tuple[str, ...],
) -> None:
    plan = Plan(TASKS[task], model, texts, length, factor, seconds / rounds, deadline, in_flight, capacity_seconds)
    results = measure(repository, plan, rounds, cpus, serve)
    for result in results:
        click.echo("\n".join(describe(result, deadline)))
    if json_file:
        json_file.write_text(json.dumps([asdict(result) for result in results]), encoding="utf-8")


@dataclass(frozen=True)
class Plan:
    """Options of a round."""

    task: Workload
    model: str
    texts: int
    length: int
    factor: float
    seconds: float
    deadline: float
    in_flight: int
    capacity_seconds: float


def measure(repository: Path, plan: Plan, rounds: int, cpus: int, serve: Sequence[str] = ()) -> list[Round]:
    """Start a server and run all rounds."""
    own, others = cpu_sets.choose(cpus)
    with ExitStack() as stack:
        with cpu_sets.held(own):
            server = stack.enter_context(TriptychServer(["--models", str(repository), *serve]))
        if others:
            cpu_sets.pin(others)
        return asyncio.run(_measure(server, plan, rounds))


def describe(result: Round, deadline: float) -> Iterator[str]:
    """Yield the lines of the report."""
    overload = result.overload
    yield f"capacity          {result.capacity_before:8.1f} answers/s before, {result.capacity_after:.1f} after"
    yield f"overload          {overload.rate:8.1f} calls/s for {overload.seconds:.0f} s: {dict(overload.codes)}"
    yield f"goodput           {overload.goodput:8.1f} answers/s, {result.ratio:.3f} of the capacity"
    per_second = len(overload.latencies) / overload.cpu_seconds
    yield f"by CPU time       {per_second:8.1f} answers a CPU second, {result.cpu_ratio:.3f} of the capacity's"
    yield f"answers           {_ms(overload.latencies)}, deadline {1000 * deadline:.0f} ms"
    yield f"refusals          {_ms(overload.refusals)}"
    yield f"memory            {overload.memory[0]:8.1f} MB at first, {overload.memory[-1]:.1f} in the end"
    yield f"memory growth     {result.memory_growth:+8.1f} MB after the first quarter"
    yield f"recovery          {result.recovery:8.2f} s; calm p99 {1000 * result.calm_p99:.0f} ms"
    yield f"generator late    {_ms(overload.lags)}"


def _ms(values: Sequence[float]) -> str:
    if not values:
        return "    none"
    p50, p99 = (1000 * float(np.percentile(values, percent)) for percent in (50, 99))
    return f"{p50:8.1f} ms p50, {p99:.1f} ms p99"


async def _measure(server: ServerProcess, plan: Plan, rounds: int) -> list[Round]:
    process = psutil.Process(server.pid)
    # Without pools of their own, channels to one address would share a connection.
    channels = [aio.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(CHANNELS)]
    rng = random.Random(1)
    requests = [plan.task.request(rng, plan.model, plan.texts, plan.length) for _ in range(100)]
    calls = [plan.task.stub(channel) for channel in channels]

    async def call(timeout: float) -> object:
        return await rng.choice(calls)(rng.choice(requests), timeout=timeout)

    await _closed_loop(call, plan.in_flight, WARM_UP_SECONDS)
    return [await _round(call, plan, process, seed) for seed in range(rounds)]


async def _round(call: Call, plan: Plan, process: psutil.Process, seed: int) -> Round:
    calm = [latency for _, latency in await _one_by_one(call)]
    busy = _cpu_seconds(process)
    before = await _closed_loop(call, plan.in_flight, plan.capacity_seconds)
    busy = _cpu_seconds(process) - busy
    overload = await _overload(call, plan, before.rate * plan.factor, process, seed)
    calm_p99 = float(np.percentile(calm, 99))
    recovery = max((when for when, latency in await _one_by_one(call) if latency > SLOW * calm_p99), default=0.0)
    again = _cpu_seconds(process)
    after = await _closed_loop(call, plan.in_flight, plan.capacity_seconds)
    busy += _cpu_seconds(process) - again
    return Round(before.rate, after.rate, busy / (before.answered + after.answered), overload, calm_p99, recovery)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True)
class Capacity:
    """Result of a closed loop."""

    rate: float  # responses per second after the ramp
    answered: int  # in total


async def _closed_loop(call: Call, in_flight: int, seconds: float) -> Capacity:
    began = time.perf_counter() + RAMP_SECONDS
    ends: list[float] = []

    async def caller() -> None:
        while time.perf_counter() < began + seconds:
            await call(PATIENCE_SECONDS)
            ends.append(time.perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return Capacity(sum(0 < end < seconds for end in ends) / seconds, len(ends))


async def _one_by_one(call: Call) -> list[tuple[float, float]]:
    """Return moment and latency of each request, sent one after the other; the latency of a rejected one is infinite."""
    began, found = time.perf_counter(), []
    while (sent := time.perf_counter()) < began + CALM_SECONDS:
        try:
            await call(PATIENCE_SECONDS)
        except grpc.RpcError:
            found.append((time.perf_counter() - began, float("inf")))
        else:
            found.append((time.perf_counter() - began, time.perf_counter() - sent))
    return found


async def _overload(call: Call, plan: Plan, rate: float, process: psutil.Process, seed: int) -> Overload:
    result = Overload(plan.seconds, rate)
    watching = asyncio.create_task(_watch(process, result.memory))
    busy = _cpu_seconds(process)
    start, under_way = time.perf_counter(), set()
    for offset in takewhile(lambda moment: moment < plan.seconds, poisson(rate, seed)):
        if (ahead := start + offset - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        result.lags.append(max(0.0, time.perf_counter() - start - offset))
        task = asyncio.create_task(_send(call, plan.deadline, result))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    watching.cancel()
    result.cpu_seconds = _cpu_seconds(process) - busy
    asyncio.gather(*under_way).add_done_callback(lambda _: None)  # they end during the recovery
    return result


async def _send(call: Call, deadline: float, result: Overload) -> None:
    sent = time.perf_counter()
    try:
        await call(deadline)
    except aio.AioRpcError as error:
        _count(result, error.code().name)
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            result.refusals.append(time.perf_counter() - sent)
    else:
        _count(result, "OK")
        result.latencies.append(time.perf_counter() - sent)


def _count(result: Overload, code: str) -> None:
    result.codes[code] = result.codes.get(code, 0) + 1


async def _watch(process: psutil.Process, memory: list[float]) -> None:
    while True:
        memory.append(process.memory_info().rss / 1e6)
        await asyncio.sleep(MEMORY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
