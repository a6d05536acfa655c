"""Thin gRPC servers with request batching: a request waits for a free lane, shares a batch, and waits for all of the batch.

    python tests/benchmarks/thin_server.py ctranslate2 FOLDER --workers 2 --threads 1 --limit 255
    python tests/benchmarks/thin_server.py static REPOSITORY --model NAME --workers 2 --limit 255
    python tests/benchmarks/thin_server.py pytorch CHECKPOINT --device cuda --limit 255

The service is Triptych's Translate alone; texts come from the requests, decoding options from the command line. "static" is
Triptych's engine without its iteration-level batching, "pytorch" candidates/torch_compiled.py. Prints `ready on HOST:PORT` on
standard error and serves until it is killed.
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
from candidates.candidate import Answer, Candidate, Decoding
from candidates.ctranslate2_model import CTranslate2Model, Split
from candidates.triptych_model import TriptychModel, find_model
from grpc import aio

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_serving.server import SWITCH_SECONDS

Waiting = tuple[str, "asyncio.Future[Answer]"]


@dataclass(frozen=True)
class Batching:
    """Limits of a batch."""

    size: int  # texts
    wait_seconds: float  # for more texts


class Batcher:
    """Queue in front of the lanes; each lane translates one batch at a time in a thread.

    Args:
        lanes: A candidate that supports concurrent calls may occur several times.
        decoding: Options for every text.
        batching: Limits of a batch.
    """

    def __init__(self, lanes: Sequence[Candidate], decoding: Decoding, batching: Batching) -> None:
        self._decoding, self._batching = decoding, batching
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._pool = ThreadPoolExecutor(len(lanes))
        self._tasks = [asyncio.create_task(self._work(lane)) for lane in lanes]

    async def translate(self, text: str) -> Answer:
        """Translate one text in the next batch."""
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
            except Exception as error:  # reported to all callers of the batch
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
    """Translate method without options."""

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
    """Serve until the process is killed.

    Args:
        lanes: As for `Batcher`, like `decoding` and `batching`.
        decoding: Options for every text.
        batching: Limits of a batch.
        texts: Texts of the warm-up, in batches of every power of two.
    """
    sys.setswitchinterval(SWITCH_SECONDS)  # as in Triptych's server
    sizes = [1 << power for power in range(batching.size.bit_length())] if len(texts) > 1 else [1]
    for lane in dict.fromkeys(lanes):
        for text, size in product(texts, sizes):
            lane.translate([text] * size, decoding)
    server = aio.server()
    servicer = Servicer(Batcher(lanes, decoding, batching))  # type: ignore[abstract]  # the other methods are not called
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    click.echo(f"ready on 127.0.0.1:{port}", err=True)
    await server.wait_for_termination()


@click.command()
@click.argument("kind", type=click.Choice(["ctranslate2", "static", "pytorch"]))
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--model", default="")
@click.option("--precision", default="int8", show_default=True)
@click.option("--workers", default=1, show_default=True, help="Concurrent batches.")
@click.option("--threads", default=1, show_default=True, help="Threads of each, CTranslate2 only.")
@click.option("--max-batch", default=32, show_default=True)
@click.option("--wait-ms", default=2.0, show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--limit", default=255, show_default=True, help="Maximum tokens of a translation.")
@click.option("--exact", is_flag=True, help="Exactly that many tokens.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--warm", type=click.Path(path_type=Path, exists=True), default=None, help="JSON list of texts for the warm-up.")
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
        lanes = [CTranslate2Model(path, precision, [Split(workers, threads)], device)] * workers
    elif kind == "pytorch":
        lanes = [_pytorch(path, device)]  # captured graphs of a process share memory: one batch at a time
    else:
        entry = find_model(path, model)
        slots = max_batch * beam
        lanes = [TriptychModel(entry, precision, slots=slots, workers=1, device=device) for _ in range(workers)]
    asyncio.run(serve(lanes, Decoding(beam, limit, exact), Batching(max_batch, wait_ms / 1_000), texts))


def _pytorch(checkpoint: Path, device: str) -> Candidate:
    from candidates.torch_compiled import CompiledTorch

    from triptych_training.checkpoints.translation import load_checkpoint

    return CompiledTorch(load_checkpoint(checkpoint), device, compiles=device != "cpu")


if __name__ == "__main__":
    main()
