"""What a repeated request costs: answered from memory, computed with a cache beside it, computed without one.

    python tests/benchmarks/repeated.py REPOSITORY [--rounds 7] [--count 400] [--in-flight 8]

REPOSITORY has one translation model. "echo" is a call that computes nothing. The four take turns in every round; the table has
medians. Requests that are computed each have a text of their own.
"""

import asyncio
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from echo import METHOD
from grpc import aio
from process import ServerProcess

from triptych.v1 import translation_pb2, translation_pb2_grpc

Ask = Callable[[], Any]


def triptych(repository: Path, *flags: str) -> ServerProcess:
    """A server."""
    where = ["--models", str(repository), "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0"]
    return ServerProcess(["-m", "triptych_cli", "serve", *where, *flags])


@contextmanager
def echo() -> Iterator[str]:
    """The address of a server that computes nothing."""
    with subprocess.Popen([sys.executable, Path(__file__).with_name("echo.py")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


async def rate(ask: Ask, count: int, in_flight: int) -> float:
    """Requests a second of a closed loop."""

    async def work() -> None:
        for _ in range(count // in_flight):
            await ask()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return count // in_flight * in_flight / (time.perf_counter() - began)


async def measure(plain: str, cached: str, bare: str, rounds: int, count: int, in_flight: int) -> dict[str, float]:
    """Medians by name."""
    numbers = itertools.count()

    def request(text: str) -> translation_pb2.TranslateRequest:
        return translation_pb2.TranslateRequest(contents=[text], options=translation_pb2.DecodingOptions(max_length=8))

    async with aio.insecure_channel(plain) as one, aio.insecure_channel(cached) as two, aio.insecure_channel(bare) as three:
        without, with_cache = (translation_pb2_grpc.TranslationServiceStub(channel) for channel in (one, two))
        hello, bytes_ = request("hello"), request("hello").SerializeToString()
        asks: dict[str, Ask] = {
            "echo": lambda: three.unary_unary(METHOD)(bytes_),
            "from memory": lambda: with_cache.Translate(hello),
            "computed, cache on": lambda: with_cache.Translate(request(f"hello {next(numbers)}")),
            "computed, cache off": lambda: without.Translate(request(f"hello {next(numbers)}")),
        }
        rates: dict[str, list[float]] = {name: [] for name in asks}
        for turn in range(rounds + 1):
            for name, ask in asks.items():
                found = await rate(ask, count, in_flight)
                if turn:  # the first warms up
                    rates[name].append(found)
    return {name: statistics.median(found) for name, found in rates.items()}


@click.command()
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--rounds", default=7)
@click.option("--count", default=400)
@click.option("--in-flight", default=8)
def main(repository: Path, rounds: int, count: int, in_flight: int) -> None:
    """Print requests a second."""
    with ExitStack() as stack:
        plain = stack.enter_context(triptych(repository)).address
        cached = stack.enter_context(triptych(repository, "--response-cache-bytes", "100000000", "--deduplicate")).address
        bare = stack.enter_context(echo())
        for name, found in asyncio.run(measure(plain, cached, bare, rounds, count, in_flight)).items():
            click.echo(f"{name:22}{found:8.0f} requests/s")


if __name__ == "__main__":
    main()
