"""Text generation: how much long prompts delay the next token of other streams.

    python tests/benchmarks/stream_gaps.py BUNDLE [--precision int8] [--streams 4] [--prompts 5] [--length 1000]
        [--limit-ms 100]

Streams generate without end, greedily, on a server of their own. After some seconds, prompts of `--length` random tokens are
sent one after another. The table has the gaps between the pieces of a stream, in ms, before and while the prompts are read, and
the delay: how much longer the latter are than the median of the former. The exit code is 1 if a delay was longer than the limit
and, at the worst, none was before.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from report.tables import Table

from triptych_bench.server.process import TriptychServer
from triptych_client import Client
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextGenerationManifest
from triptych_serving.text.tokenizers import read_tokenizer

COLUMNS = {"": -14, "gaps": 7, "p50": 8, "p99": 8, "longest": 8}
ALONE_SECONDS = 5.0
START = 16  # tokens of a stream's prompt


class Stream:
    """A stream that is read in a thread; `times` are those of its pieces, monotonic seconds."""

    def __init__(self, address: str, prompt: str, tokens: int) -> None:
        self._address, self._prompt, self._tokens = address, prompt, tokens
        self.times: list[float] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        options = {"max_tokens": self._tokens, "min_length": self._tokens, "sampling_topk": 1}
        with Client(self._address) as client, client.generate_stream(self._prompt, **options) as pieces:
            for _ in pieces:
                self.times.append(time.monotonic())
                if self.stop.is_set():
                    return


def gaps(streams: Sequence[Stream], begin: float, end: float) -> list[float]:
    """Return the times between two pieces of a stream, in ms, of which the later one came in a period."""
    return [
        1e3 * (later - earlier)
        for stream in streams
        for earlier, later in zip(stream.times, stream.times[1:], strict=False)
        if begin <= later < end
    ]


@click.command()
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--precision", default="int8", show_default=True)
@click.option("--streams", "count", default=4, show_default=True)
@click.option("--prompts", default=5, show_default=True)
@click.option("--length", default=1_000, show_default=True, help="Tokens of each prompt.")
@click.option("--limit-ms", default=100.0, show_default=True)
def main(bundle: Path, precision: str, count: int, prompts: int, length: int, limit_ms: float) -> None:
    """Print the gaps before and while prompts are read."""
    manifest = open_bundle(bundle).manifest_of(TextGenerationManifest)
    tokenizer, random = read_tokenizer(bundle / "tokenizer.json"), np.random.default_rng(1)
    most = manifest.limits.max_context

    def draw(size: int) -> str:
        text: str = tokenizer.decode(random.integers(100, manifest.vocabulary_size, size).tolist())
        return text

    name = bundle.absolute().parent.name
    flags = ["--models", str(bundle.absolute().parents[1]), "--model", name, "--precision", precision]
    with TriptychServer(flags) as server, Client(server.address) as client:
        streams = [Stream(server.address, draw(START), most - 4 * START) for _ in range(count)]
        time.sleep(ALONE_SECONDS)
        began = time.monotonic()
        for _ in range(prompts):
            client.generate(draw(min(length, most * 3 // 4)), max_tokens=1)
        ended = time.monotonic()
        alive = sum(stream.thread.is_alive() for stream in streams)
        for stream in streams:
            stream.stop.set()
            stream.thread.join()
    table = Table(COLUMNS)
    table.head(f"{name}, {precision}: {count} streams, {prompts} prompts of {length} tokens in {ended - began:.1f} s")
    periods = {"alone": gaps(streams, 0.0, began), "prompts read": gaps(streams, began, ended)}
    for period, found in periods.items():
        table.row(period, len(found), *(np.percentile(found, [50, 99, 100]) if found else [None] * 3))
    click.echo(f"{alive} of {count} streams were generating all the time")
    usual = float(np.median(periods["alone"] or [0.0]))
    alone, read = ([gap - usual for gap in found] for found in periods.values())
    table.row("delay", len(read), *(np.percentile(read, [50, 99, 100]) if read else [None] * 3))
    raise SystemExit(max(read, default=0.0) > limit_ms >= max(alone, default=0.0))


if __name__ == "__main__":
    main()
