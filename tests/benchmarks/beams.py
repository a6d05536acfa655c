"""The host's part of a step of beam search on a GPU: everything but the graph, whose results are random numbers here.

    python tests/benchmarks/beams.py [--sentences 128] [--beam 4] [--steps 80] [--rounds 5] [--length]

Prints the CPU time of a step in milliseconds, a median with its range, and the rows that are copied between hypotheses.
TRIPTYCH_NATIVE_KERNELS=off measures numpy in place of the native kernels; --length adds a minimum length, as benchmarks do.
"""

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fixtures.toy import BUNDLE
from tests.unit.serving.calls import row_of
from tests.unit.serving.toy_graphs import SHAPE

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import Limits, TranslationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.cuda.host_mirrored_cache import HostMirroredCache
from triptych_serving.decoding.cuda.kv_cache import DeviceKVCache
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.decoding.slots import SearchSlots
from triptych_serving.runtime.memory import DeviceArray, host_view
from triptych_serving.runtime.memory.host import HostMemory
from triptych_serving.runtime.memory.protocol import RowCopy
from triptych_serving.text.vocabulary import Vocabulary

VOCABULARY, LIMIT, POOL = 16_000, 128, 8
SOURCE = (5, 6, 7)
FIRST_STEPS = 5  # in which beams become as many as they may be


class CountingMemory(HostMemory):
    """Counts copies of rows, which a GPU makes by itself."""

    copied = 0

    def copy_rows(self, array: DeviceArray, copies: Sequence[RowCopy]) -> None:
        self.copied += len(np.array(copies, np.int32))


class RandomStep:
    """A graph, bound: random candidates, descending."""

    def __init__(self, rows: int) -> None:
        rng = np.random.default_rng(0)
        self._pool = [
            (-np.sort(rng.exponential(3.0, (rows, 16)), axis=1).astype(np.float32), rng.integers(10, VOCABULARY, (rows, 16)))
            for _ in range(POOL)
        ]
        self._outputs: Mapping[str, Any] = {}
        self._turn = 0

    def shape(self, _: str) -> tuple[int | str, ...]:
        return "batch", 1, "source", SHAPE.heads * SHAPE.head_dim

    def bind(self, _: object, outputs: Mapping[str, DeviceArray]) -> "RandomStep":
        self._outputs = {name: host_view(array) for name, array in outputs.items() if name.startswith("top")}
        return self

    def run(self, _: int | None = None) -> None:
        log_probabilities, tokens = self._pool[self._turn % POOL]
        self._turn += 1
        rows, count = self._outputs["top_tokens"].shape
        self._outputs["top_log_probabilities"][...] = log_probabilities[:rows, :count]
        self._outputs["top_tokens"][...] = tokens[:rows, :count]


class NoEncoder:
    """An encoder that leaves sources at zero."""

    def encode(self, *_: object) -> Iterator[tuple[slice, DeviceArray]]:
        return iter(())


@click.command()
@click.option("--sentences", default=128, show_default=True)
@click.option("--beam", default=4, show_default=True)
@click.option("--steps", default=80, show_default=True, help="Of a round.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--length", is_flag=True, help="With a minimum length.")
def main(sentences: int, beam: int, steps: int, rounds: int, length: bool) -> None:
    manifest = open_bundle(BUNDLE).manifest_of(TranslationManifest)
    small = replace(manifest, decoder=SHAPE, limits=Limits(LIMIT, LIMIT))
    search = SearchParams(beam_size=beam, min_length=LIMIT - 1 if length else 0)
    times = []
    for _ in range(rounds):
        memory = CountingMemory()
        step, encoder = RandomStep(sentences * beam), NoEncoder()
        device: Any = DeviceKVCache(encoder, step, small, sentences * beam, memory)  # type: ignore[arg-type]
        cache: Any = HostMirroredCache(device, step, memory)  # type: ignore[arg-type]
        lane = SearchLane(SearchSlots(cache, small, VOCABULARY), manifest.tokens, Vocabulary([b""] * VOCABULARY))
        lane.join([row_of((*SOURCE, manifest.tokens.end), LIMIT - 1, search) for _ in range(sentences)])
        for _ in range(FIRST_STEPS):
            lane.step()
        memory.copied, began = 0, time.thread_time()
        for _ in range(steps):
            lane.step()
        times.append(1_000 * (time.thread_time() - began) / steps)
    spread = f"{min(times):.3f} to {max(times):.3f}"
    click.echo(
        f"{statistics.median(times):.3f} ms ({spread}) a step of {sentences} x {beam}, {memory.copied / steps:.0f} copies"
    )


if __name__ == "__main__":
    main()
