"""Rate of repeated requests: from the response cache, computed with the cache on, computed with the cache off.

    python tests/benchmarks/repeated.py REPOSITORY [--rounds 7] [--count 400] [--in-flight 8]

REPOSITORY has one translation model. "echo" is a call that computes nothing. The four take turns in every round; the table has
medians. Each computed request has a text of its own.
"""

import asyncio
import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from echo import METHOD
from grpc import aio
from servers.rates import median_rates
from servers.start import script_server

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_bench.server.process import TriptychServer

CACHE = ("--response-cache-bytes", "100000000", "--deduplicate")


async def measure(plain: str, cached: str, bare: str, rounds: int, count: int, in_flight: int) -> dict[str, float]:
    """Return median rates by name."""
    numbers = itertools.count()

    def request(text: str) -> translation_pb2.TranslateRequest:
        return translation_pb2.TranslateRequest(contents=[text], options=translation_pb2.DecodingOptions(max_length=8))

    async with aio.insecure_channel(plain) as one, aio.insecure_channel(cached) as two, aio.insecure_channel(bare) as three:
        without, with_cache = (translation_pb2_grpc.TranslationServiceStub(channel) for channel in (one, two))
        hello, bytes_ = request("hello"), request("hello").SerializeToString()
        calls: dict[str, Any] = {
            "echo": lambda _: three.unary_unary(METHOD)(bytes_),
            "from the cache": lambda _: with_cache.Translate(hello),
            "computed, cache on": lambda _: with_cache.Translate(request(f"hello {next(numbers)}")),
            "computed, cache off": lambda _: without.Translate(request(f"hello {next(numbers)}")),
        }
        return await median_rates(calls, rounds, count, in_flight)


@click.command()
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--rounds", default=7)
@click.option("--count", default=400)
@click.option("--in-flight", default=8)
def main(repository: Path, rounds: int, count: int, in_flight: int) -> None:
    """Print requests per second."""
    with ExitStack() as stack:
        flags = ["--models", str(repository)]
        servers = TriptychServer(flags), TriptychServer([*flags, *CACHE]), script_server("echo.py")
        plain, cached, bare = (stack.enter_context(server).address for server in servers)
        for name, found in asyncio.run(measure(plain, cached, bare, rounds, count, in_flight)).items():
            click.echo(f"{name:22}{found:8.0f} requests/s")


if __name__ == "__main__":
    main()
