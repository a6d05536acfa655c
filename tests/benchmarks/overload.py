"""Goodput of a server that receives five times as many requests as it can process.

    python tests/benchmarks/overload.py REPOSITORY [--task translation|embedding|image] [--model NAME] [--texts N] [--length N]
        [--factor 5] [--seconds 120] [--rounds 1] [--deadline 2] [--in-flight 16] [--request-seconds S] [--cpus 2] [--json FILE]
        [-- --slots 32 ...]

The server runs on the first `--cpus` CPUs; this process generates the load on the others, if there are any. "generator late"
shows whether the generator is the limit. On shared CPUs sending and rejecting a call have a cost, so use requests that keep the
server busy for at least 50 ms: many long texts.

Capacity is the throughput of a closed loop of `--in-flight` requests without deadlines, before and after the overload of each
round. Overload is Poisson arrivals at `--factor` times the capacity before; every call has the deadline, and rejected calls are
not sent again. Goodput counts the responses within the deadline. A translation request is `--texts` texts of 20 words with
exactly `--length` tokens to decode each; an embedding request, texts of `--length` words; an image request, JPEGs of `--length`
pixels a side. With `--request-seconds` there are as many more or fewer texts as the closed loop needs to complete one request
in that time, whatever the machine.

Recovery: after the last arrival requests are sent one after the other; recovery ends with the last one that takes more than
twice the 99th percentile of such requests before the overload.
"""

import asyncio
import io
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
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
from triptych_bench.load.log import Log
from triptych_bench.load.loops import run_closed_loop, run_open_loop
from triptych_bench.server.process import ServerProcess, TriptychServer
from triptych_bench.server.resources import ProcessMeter, ResourceSample

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


@dataclass(frozen=True)
class Overload:
    """Outcomes of the calls, in seconds."""

    seconds: float
    rate: float  # calls sent per second
    latencies: list[float]  # of the responses
    refusals: list[float]  # latencies of rejected calls
    codes: dict[str, int]
    lags: list[float]  # delays of the load generator
    memory: list[float]  # MB, once a second
    cpu_seconds: float  # of the server

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
@click.option("--request-seconds", type=float, default=0.0)
@click.option("--capacity-seconds", type=float, default=15.0)
@click.option("--cpus", type=int, default=2)
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
@click.argument("serve", nargs=-1, type=click.UNPROCESSED)
def main(repository: Path, rounds: int, cpus: int, json_file: Path | None, serve: tuple[str, ...], **given: Any) -> None:
    plan = Plan(**{**given, "task": TASKS[given["task"]], "seconds": given["seconds"] / rounds})
    results = measure(repository, plan, rounds, cpus, serve)
    for result in results:
        click.echo("\n".join(describe(result, plan.deadline)))
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
    request_seconds: float  # 0: `texts` as given
    capacity_seconds: float

    def requests(self) -> list[Any]:
        """Make random requests."""
        rng = random.Random(1)
        return [self.task.request(rng, self.model, self.texts, self.length) for _ in range(100)]


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
    yield f"overload          {overload.rate:8.1f} calls/s for {overload.seconds:.0f} s: {overload.codes}"
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
    # Without pools of their own, channels to one address would share a connection.
    channels = [aio.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(CHANNELS)]
    calls = itertools.cycle([plan.task.stub(channel) for channel in channels])
    load = Load(lambda request, timeout: next(calls)(request, timeout=timeout), plan.requests(), ProcessMeter(server.pid))
    log = await load.closed(plan.in_flight, RAMP_SECONDS + WARM_UP_SECONDS)
    if plan.request_seconds:
        seconds = max(record.received for record in log.records) - log.started
        texts = max(1, round(plan.texts * plan.request_seconds * len(log.records) / seconds))
        click.echo(f"texts a request   {texts:8}")
        load = replace(load, requests=replace(plan, texts=texts).requests())
    return [await _round(load, plan, seed) for seed in range(rounds)]


@dataclass(frozen=True)
class Load:
    """Calls, requests, and the CPU time and memory of the server."""

    call: Callable[[Any, float], Any]  # of a request and a timeout in seconds
    requests: Sequence[Any]
    meter: ProcessMeter

    async def closed(self, in_flight: int, seconds: float) -> Log:
        return await run_closed_loop(partial(self.call, timeout=PATIENCE_SECONDS), self.requests, in_flight, seconds=seconds)

    async def sample(self) -> ResourceSample:
        found = await self.meter.sample()
        assert found is not None, "the server has ended"
        return found

    async def cpu_seconds(self) -> float:
        return (await self.sample()).cpu or 0.0


async def _round(load: Load, plan: Plan, seed: int) -> Round:
    calm = (await load.closed(1, CALM_SECONDS)).records
    calm_p99 = float(np.percentile([record.latency for record in calm], 99))
    before, busy, answered = await _capacity(load, plan)
    rate, busy_before = before * plan.factor, await load.cpu_seconds()
    calls = run_open_loop(partial(load.call, timeout=plan.deadline), load.requests, rate, plan.seconds, seed=seed)
    sending = asyncio.create_task(calls)
    memory = await _watch(load, plan.seconds)
    overload_cpu = await load.cpu_seconds() - busy_before
    again = await load.closed(1, CALM_SECONDS)  # the last calls of the overload end meanwhile
    slow = [record for record in again.records if not record.ok or record.latency > SLOW * calm_p99]
    recovery = max((record.received - again.started for record in slow), default=0.0)
    overload = _overload(await sending, plan.seconds, rate, memory, overload_cpu)
    after, more_busy, more = await _capacity(load, plan)
    return Round(before, after, (busy + more_busy) / (answered + more), overload, calm_p99, recovery)


async def _capacity(load: Load, plan: Plan) -> tuple[float, float, int]:
    """Return the responses per second after the ramp of a closed loop, CPU seconds of the server, and all responses."""
    busy = await load.cpu_seconds()
    log = await load.closed(plan.in_flight, RAMP_SECONDS + plan.capacity_seconds)
    if log.messages:
        raise RuntimeError(f"closed loop: {log.messages}")
    moments = [record.received - log.started - RAMP_SECONDS for record in log.records]
    rate = sum(0 < moment < plan.capacity_seconds for moment in moments) / plan.capacity_seconds
    return rate, await load.cpu_seconds() - busy, len(moments)


async def _watch(load: Load, seconds: float) -> list[float]:
    """Return the memory in MB once a second, for a number of seconds."""
    memory, end = [], time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        memory.append(((await load.sample()).memory or 0) / 1e6)
        await asyncio.sleep(min(left, MEMORY_SECONDS))
    return memory


def _overload(log: Log, seconds: float, rate: float, memory: list[float], cpu_seconds: float) -> Overload:
    took = [(record.code, record.received - record.sent) for record in log.records]
    return Overload(
        seconds,
        rate,
        latencies=[latency for code, latency in took if code == "OK"],
        refusals=[latency for code, latency in took if code == "RESOURCE_EXHAUSTED"],
        codes=dict(Counter(code for code, _ in took)),
        lags=[record.sent - record.due for record in log.records],
        memory=memory,
        cpu_seconds=cpu_seconds,
    )


if __name__ == "__main__":
    sys.exit(main())
