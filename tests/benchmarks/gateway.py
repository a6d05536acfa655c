"""Rate of JSON requests through the HTTP gateway, as a share of the rate of the same requests over gRPC.

    python tests/benchmarks/gateway.py [--rounds 7] [--count 600] [--in-flight 64]

The embedded models translate and embed sentences, each request a text of its own. gRPC and JSON take turns in every round; the
table has medians. The HTTP client is minimal: one connection for each request in flight, and responses are not parsed.
"""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import click
from grpc import aio
from servers.rates import median_rates

from triptych.v1 import embedding_pb2, embedding_pb2_grpc, translation_pb2, translation_pb2_grpc
from triptych_bench.server.process import TriptychServer
from triptych_embedded.request import embedded_repository

PORT = 18_765
HEAD = "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
LENGTH = re.compile(rb"content-length: (\d+)")
WORDS = ("the", "old", "bridge", "was", "rebuilt", "three", "years", "later", "because", "floods", "had", "destroyed", "it")


@dataclass
class JsonClient:
    """Idle connections to the gateway."""

    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def post(self, path: str, body: dict[str, Any]) -> None:
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", PORT)
        data = json.dumps(body).encode()
        writer.write(HEAD.format(path=path, length=len(data)).encode() + data)
        head = await reader.readuntil(b"\r\n\r\n")
        found = LENGTH.search(head)
        if not head.startswith(b"HTTP/1.1 200") or found is None:
            raise RuntimeError(head.decode())
        await reader.readexactly(int(found[1]))
        self.idle.append((reader, writer))


def sentence(number: int) -> str:
    """Return a text of nine words that differs from all others."""
    start = number % (len(WORDS) - 8)
    return f"{' '.join(WORDS[start : start + 8])} {number}."


async def measure(address: str, rounds: int, count: int, in_flight: int) -> dict[tuple[str, str], float]:
    """Return median rates by task and protocol."""
    client, number = JsonClient(), 0

    def text() -> str:
        nonlocal number
        number += 1
        return sentence(number)

    async with aio.insecure_channel(address) as channel:
        translation = translation_pb2_grpc.TranslationServiceStub(channel)
        embedding = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        translate, embed = "/triptych.v1.TranslationService/Translate", "/triptych.v1.EmbeddingService/EmbedText"
        calls: dict[tuple[str, str], Any] = {
            ("translate", "gRPC"): lambda _: translation.Translate(translation_pb2.TranslateRequest(contents=[text()])),
            ("translate", "JSON"): lambda _: client.post(translate, {"contents": [text()]}),
            ("embed", "gRPC"): lambda _: embedding.EmbedText(embedding_pb2.EmbedTextRequest(contents=[text()])),
            ("embed", "JSON"): lambda _: client.post(embed, {"contents": [text()]}),
            ("embed", "OpenAI"): lambda _: client.post("/v1/embeddings", {"input": text(), "model": "bert-en"}),
        }
        return await median_rates(calls, rounds, count, in_flight)


@click.command()
@click.option("--rounds", default=7)
@click.option("--count", default=600)
@click.option("--in-flight", default=64)
def main(rounds: int, count: int, in_flight: int) -> None:
    """Print requests per second, and the share of gRPC's rate."""
    with TriptychServer(["--models", str(embedded_repository()), "--http-port", str(PORT)]) as server:
        rates = asyncio.run(measure(server.address, rounds, count, in_flight))
        for (task, protocol), rate in rates.items():
            click.echo(f"{task:10} {protocol:7}{rate:8.0f} requests/s{rate / rates[task, 'gRPC']:8.2f}")


if __name__ == "__main__":
    main()
