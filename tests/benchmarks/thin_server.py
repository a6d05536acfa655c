"""Thin gRPC servers with request batching: requests wait for a free lane, share a batch, and wait for the whole batch to end.

    python tests/benchmarks/thin_server.py ctranslate2 FOLDER --workers 2 --threads 1 --limit 255
    python tests/benchmarks/thin_server.py static REPOSITORY --model NAME --workers 2 --limit 255
    python tests/benchmarks/thin_server.py pytorch CHECKPOINT --device cuda --limit 255

The service is Triptych's, Translate alone; texts come from the requests, how they are decoded from the command line. "static"
is Triptych's engine without its iteration-level batching, "pytorch" gpu_torch.py. Prints
`ready on HOST:PORT`, serves until it is killed.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import click
from candidate import Answer, Candidate, Decoding
from ct2_peer import Ct2Peer, Split
from grpc import aio
from triptych_peer import TriptychPeer, find_model

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_serving.server import SWITCH_SECONDS

Waiting = tuple[str, "asyncio.Future[Answer]"]


@dataclass(frozen=True)
class Batching:
    """When a batch is full."""

    size: int  # texts
    wait_seconds: float  # for company


class Batcher:
    """One queue in front of the lanes, each of which translates a batch at a time in a thread.

    Args:
        lanes: may be one candidate several times, if it takes several calls at once.
        decoding: of every text.
        batching: see there.
    """

    def __init__(self, lanes: Sequence[Candidate], decoding: Decoding, batching: Batching) -> None:
        self._decoding, self._batching = decoding, batching
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._pool = ThreadPoolExecutor(len(lanes))
        self._tasks = [asyncio.create_task(self._work(lane)) for lane in lanes]

    async def translate(self, text: str) -> Answer:
        """One text, in whichever batch takes it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((text, future))
        return await future

    async def _work(self, lane: Candidate) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._queue.get()]
            if self._queue.qsize() < self._batching.size - 1:
                await asyncio.sleep(self._batching.wait_seconds)
            while not self._queue.empty() and len(batch) < self._batching.size:
                batch.append(self._queue.get_nowait())
            wanted = [(text, future) for text, future in batch if not future.cancelled()]
            if not wanted:
                continue
            texts = [text for text, _ in wanted]
            try:
                answers = await loop.run_in_executor(self._pool, lane.translate, texts, self._decoding)
            except Exception as error:  # those who wait shall hear of it
                _fail(wanted, error)
            else:
                _answer(wanted, answers)


def _answer(batch: Sequence[Waiting], answers: Sequence[Answer]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


class Servicer(translation_pb2_grpc.TranslationServiceServicer):
    """Translate, with nothing but the texts."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    async def Translate(  # noqa: N802 - named as the proto names it
        self,
        request: translation_pb2.TranslateRequest,
        context: "aio.ServicerContext[translation_pb2.TranslateRequest, translation_pb2.TranslateResponse]",
    ) -> translation_pb2.TranslateResponse:
        answers = await asyncio.gather(*map(self._batcher.translate, request.contents))
        return translation_pb2.TranslateResponse(translations=[_translation(answer) for answer in answers])


def _translation(answer: Answer) -> translation_pb2.Translation:
    hypothesis = translation_pb2.Hypothesis(text=answer.text, token_count=answer.tokens)
    return translation_pb2.Translation(translated_text=answer.text, hypotheses=[hypothesis])


async def serve(lanes: Sequence[Candidate], decoding: Decoding, batching: Batching, texts: Sequence[str] = ("a",)) -> None:
    """Until the process is killed.

    Args:
        lanes: as Batcher takes them, like the next two.
        decoding: see there.
        batching: see there.
        texts: each lane translates a batch of each of them beforehand, in every power of two of rows.
    """
    sys.setswitchinterval(SWITCH_SECONDS)  # as Triptych's own server
    sizes = [1 << power for power in range(batching.size.bit_length())] if len(texts) > 1 else [1]
    for lane in dict.fromkeys(lanes):
        for text, size in product(texts, sizes):
            lane.translate([text] * size, decoding)
    server = aio.server()
    servicer = Servicer(Batcher(lanes, decoding, batching))  # type: ignore[abstract]  # the other methods are not asked for
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    click.echo(f"ready on 127.0.0.1:{port}")
    await server.wait_for_termination()


@click.command()
@click.argument("kind", type=click.Choice(["ctranslate2", "static", "pytorch"]))
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--model", default="")
@click.option("--precision", default="int8", show_default=True)
@click.option("--workers", default=1, show_default=True, help="Batches at once.")
@click.option("--threads", default=1, show_default=True, help="In each, of CTranslate2.")
@click.option("--max-batch", default=32, show_default=True)
@click.option("--wait-ms", default=2.0, show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--limit", default=255, show_default=True, help="The most tokens of a translation.")
@click.option("--exact", is_flag=True, help="No fewer tokens either.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--warm", type=click.Path(path_type=Path, exists=True), default=None, help="JSON list of texts to begin with.")
def main(  # noqa: PLR0917 - click passes them by name
    kind: str,
    path: Path,
    model: str,
    precision: str,
    workers: int,
    threads: int,
    max_batch: int,
    wait_ms: float,
    beam: int,
    limit: int,
    exact: bool,
    device: str,
    warm: Path | None,
) -> None:
    texts = json.loads(warm.read_text(encoding="utf-8")) if warm else ["a"]
    lanes: list[Candidate]
    if kind == "ctranslate2":
        lanes = [Ct2Peer(path, precision, [Split(workers, threads)], device)] * workers
    elif kind == "pytorch":
        lanes = [_pytorch(path, device)]  # captured graphs of one process share their memory: no second batch at once
    else:
        entry = find_model(path, model)
        slots = max_batch * beam
        lanes = [TriptychPeer(entry, precision, slots=slots, workers=1, device=device) for _ in range(workers)]
    asyncio.run(serve(lanes, Decoding(beam, limit, exact), Batching(max_batch, wait_ms / 1_000), texts))


def _pytorch(checkpoint: Path, device: str) -> Candidate:
    from gpu_torch import CompiledTorchPeer

    from triptych_training.checkpoints.translation import load_checkpoint

    return CompiledTorchPeer(load_checkpoint(checkpoint), device, compiles=device != "cpu")


if __name__ == "__main__":
    main()
