"""Measures how long the server answers nobody while one caller sends large requests.

    python -m tests.benchmarks.stalls [NAME...] [--sentences 150000] [--seconds 12] [--json FILE]

A thread asks for the server's health every 5 ms; another caller sends one request of each NAME after the other: vectors
(HTTP), and documents: paragraph, html, markdown, list (JSON), docx. Documents are cancelled after --seconds. Printed is the
longest time of a health check during each. The server is `triptych serve` with the embedded models, in a process of its own.
"""

import io
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_embedded.request import embedded_repository

from ..service.support.processes import ServerProcess, free_port
from ..unit.documents.formats.office import docx

PAUSE_SECONDS = 0.005
CHUNK_BYTES = 1 << 20
VECTORS = 16_000


DOCUMENTS: Mapping[str, tuple[str, Callable[[list[str]], bytes]]] = {
    "paragraph": ("a.txt", lambda sentences: " ".join(sentences).encode()),
    "html": ("a.html", lambda sentences: f"<p>{' '.join(sentences)}</p>".encode()),
    "markdown": ("a.md", lambda sentences: "\n".join(f"- **{each}** [a](b)" for each in sentences).encode()),
    "list": ("a.json", lambda sentences: json.dumps(sentences).encode()),
    "docx": ("a.docx", lambda sentences: docx("".join(f"<w:p><w:r><w:t>{each}</w:t></w:r></w:p>" for each in sentences))),
}


class Health:
    """A caller that keeps the longest time of an answer."""

    def __init__(self, address: str) -> None:
        self._stub, self._stops = health_pb2_grpc.HealthStub(grpc.insecure_channel(address)), threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stops.wait(PAUSE_SECONDS):
            began = time.perf_counter()
            self._stub.Check(health_pb2.HealthCheckRequest())
            self.longest = max(self.longest, time.perf_counter() - began)

    def close(self) -> None:
        self._stops.set()
        self._thread.join()


def send_document(address: str, name: str, content: bytes, seconds: float) -> None:
    """Send a document; cancel its translation after a while."""
    make = translation_pb2.TranslateDocumentRequest

    def requests() -> Iterator[translation_pb2.TranslateDocumentRequest]:
        yield make(config=translation_pb2.DocumentConfig(file_name=name, total_bytes=len(content)))
        for first in range(0, len(content), CHUNK_BYTES):
            yield make(chunk=content[first : first + CHUNK_BYTES])

    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = TranslationServiceStub(channel).TranslateDocument(requests())
        threading.Timer(seconds, call.cancel).start()
        try:
            for _ in call:
                pass
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise


def embed(port: int) -> None:
    body = json.dumps({"inputs": ["a b"] * VECTORS, "model": "bert-en"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/embed", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        response.read()


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(["vectors", *DOCUMENTS]))
@click.option("--sentences", default=150_000, show_default=True)
@click.option("--seconds", default=12.0, show_default=True)
@click.option("--json", "json_file", type=click.File("w"))
def main(names: tuple[str, ...], sentences: int, seconds: float, json_file: io.TextIOBase | None) -> None:
    texts = [f"This is sentence number {number} of the list." for number in range(sentences)]
    found = dict[str, float]()
    port = free_port()
    with ServerProcess(embedded_repository(), "--http-port", str(port)) as server:
        for name in names or ("vectors", *DOCUMENTS):
            content = DOCUMENTS[name][1](texts) if name in DOCUMENTS else b""
            health = Health(server.address)
            if content:
                send_document(server.address, DOCUMENTS[name][0], content, seconds)
            else:
                embed(port)
            time.sleep(1)  # what is freed late counts, too
            health.close()
            found[name] = health.longest
            click.echo(f"{name:<10} {len(content) / 1e6:6.1f} MB   longest health check {health.longest:6.3f} s")
    if json_file:
        json.dump(found, json_file)


if __name__ == "__main__":
    main()
