"""Text generation: the rate of a server under concurrent requests, as a share of the same engine's in process.

    python tests/benchmarks/generation_server.py BUNDLE [--precision int8] [--concurrency 1,8,32] [--rounds 5]

In process, all prompts of a round are one call; the server gets a request for each, all at once, over gRPC. Both take turns,
with the same prompts of random tokens, greedy search and no prefix cache. The table has tokens per second of the fastest
round and the least CPU time for each token, of the process that decodes: other processes disturb the latter less. Above 1, a
share says that the server is the better one. `equal` is the share of texts that are the same, in int8 all of them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import psutil
from report.tables import Table, numbers

from triptych_bench.server.process import TriptychServer
from triptych_client import AsyncClient
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import DecodingOptions, GenerationRequest

TIMEOUT = 600.0
COLUMNS = {"in flight": 9, "tokens/s": 9, "served": 8, "share": 6, "CPU ms/token": 13, "of the server": 14, "CPU share": 10}
COLUMNS |= {"equal": 6}

Times = tuple[float, float]  # seconds, and CPU seconds


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def timed(process: psutil.Process, run: Callable[[], list[str]]) -> tuple[Times, list[str]]:
    """Run once; return the times, and the texts."""
    busy, began = cpu_seconds(process), time.perf_counter()
    texts = run()
    return (time.perf_counter() - began, cpu_seconds(process) - busy), texts


async def serve(address: str, prompts: Sequence[str], tokens: int) -> list[str]:
    """Return the texts of one request for each prompt."""
    options = {"max_tokens": tokens, "sampling_topk": 1, "min_length": tokens, "timeout_seconds": TIMEOUT}
    async with AsyncClient(address) as client:
        calls = [client.generate(prompt, **options) for prompt in prompts]
        return [generation.text for generation in await asyncio.gather(*calls)]


@click.command()
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--precision", default="int8", show_default=True)
@click.option("--concurrency", default="1,8,32", show_default=True)
@click.option("--tokens", default=64, show_default=True, help="Of each prompt, and of each output.")
@click.option("--rounds", default=5, show_default=True)
def main(bundle: Path, precision: str, concurrency: str, tokens: int, rounds: int) -> None:
    """Print rates and CPU times, with the shares."""
    name = bundle.absolute().parent.name
    generator = Generator(name, 1, open_bundle(bundle), DecodeModelOptions(precision=precision, prefix_cache_bytes=0))
    flags = ["--models", str(bundle.absolute().parents[1]), "--model", name, "--precision", precision]
    random = np.random.default_rng(1)
    options = DecodingOptions(sampling_topk=1, min_length=tokens)
    table = Table(COLUMNS)
    with TriptychServer([*flags, "--prefix-cache-bytes", "0"]) as server:
        table.head(f"{name}, {precision}: {tokens} tokens after {tokens}")
        remote, own = psutil.Process(server.pid), psutil.Process()
        for count in numbers(concurrency):
            equal: list[int] = []
            runs: tuple[list[Times], list[Times]] = ([], [])
            for _ in range(rounds + 1):  # the first one warms up
                ids = random.integers(100, generator.manifest.vocabulary_size, (count, tokens)).tolist()
                prompts = [generator.tokenizer.decode(each) for each in ids]
                request = GenerationRequest(prompts=prompts, options=options, max_tokens=tokens)
                here, expected = timed(own, partial(in_process, generator, request))
                there, found = timed(remote, lambda prompts=prompts: asyncio.run(serve(server.address, prompts, tokens)))
                equal.append(sum(map(str.__eq__, expected, found)))
                runs[0].append(here)
                runs[1].append(there)
            (mine, my_cpu), (theirs, their_cpu) = (map(min, zip(*each[1:], strict=True)) for each in runs)
            made = count * tokens
            cpu = (1e3 * my_cpu / made, 1e3 * their_cpu / made, my_cpu / their_cpu)
            table.row(count, made / mine, made / theirs, mine / theirs, *cpu, sum(equal) / len(equal) / count)
    generator.close(drain=False)


def in_process(generator: Generator, request: GenerationRequest) -> list[str]:
    """Return the texts of one request for all prompts."""
    return [generation.text for generation in generator.generate(request)]


if __name__ == "__main__":
    main()
