"""Kernels that a GPU runs while Triptych translates, with counts and durations from PyTorch's profiler.

    python tests/benchmarks/gpu_kernels.py REPOSITORY [--batches 1,32,256] [--beam 1] [--tokens 32] [--device cuda]
        [--json FILE]

A batch is translated once to warm up and once under the profiler; figures are per decoding step, with the encoder's kernels
divided among the steps. The rest of a step's time the GPU is idle.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from candidates.candidate import Decoding
from candidates.triptych_model import TriptychModel, find_model
from report.tables import Table, numbers
from torch.profiler import ProfilerActivity, profile

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.text.tokenizers import read_tokenizer

BEAM_ROWS = 2  # beams per slot of an engine
WORDS = 16
TOKENS_A_WORD = 7  # at most, on average, of pieces that stand alone
MOST = 24  # kernels shown
COLUMNS = {"us a step": 9, "runs a step": 11, "kernel": -90}


@dataclass(frozen=True)
class Kernel:
    """One of the GPU's, over all steps of a batch."""

    name: str
    runs: int
    microseconds: float


@dataclass(frozen=True)
class Batch:
    """Profile of a batch."""

    rows: int
    steps: int
    wall_seconds: float
    busy_seconds: float  # kernels and copies, one after the other
    kernels: Sequence[Kernel]


@click.command()
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--model", default="", help="[default: the first that translates]")
@click.option("--precision", default="fp16", show_default=True)
@click.option("--batches", default="1,32,256", show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--tokens", default=32, show_default=True, help="Of a translation, at most.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--tiny", is_flag=True, help="To rehearse: one batch of two rows.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(
    *,
    repository: Path,
    model: str,
    precision: str,
    batches: str,
    beam: int,
    tokens: int,
    device: str,
    tiny: bool,
    json_file: Path | None,
) -> None:
    entry = find_model(repository, model)
    sizes = [2] if tiny else numbers(batches)
    bundle = open_bundle(entry.folder)
    manifest = bundle.manifest_of(TranslationManifest)
    vocabulary = read_tokenizer(bundle.path(manifest.tokenizers[0])).get_vocab()
    words = [piece.strip("▁") for piece in sorted(vocabulary) if piece.strip("▁").isalpha()]
    length = min(WORDS, manifest.limits.max_source_tokens // TOKENS_A_WORD)
    peer = TriptychModel(entry, precision, max(sizes) * max(1, beam // BEAM_ROWS), 1, device)
    found = []
    try:
        for rows in sizes:
            texts = [" ".join(random.Random(row).choices(words, k=length)) for row in range(rows)]
            found.append(_batch(peer, texts, Decoding(beam, tokens), device))
            _print(found[-1])
    finally:
        peer.close()
    if json_file:
        json_file.write_text(json.dumps({"batches": [asdict(batch) for batch in found]}, indent=2) + "\n", encoding="utf-8")


def _batch(peer: TriptychModel, texts: Sequence[str], decoding: Decoding, device: str) -> Batch:
    peer.translate(texts, decoding)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    with profile(activities=activities) as profiler:
        started = time.perf_counter()
        answers = peer.translate(texts, decoding)
        wall = time.perf_counter() - started
    runs: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in profiler.events():
        if event.device_type.name == "CUDA":
            runs[event.name] += 1
            times[event.name] += event.time_range.elapsed_us()
    kernels = [Kernel(name, runs[name], taken) for name, taken in times.most_common()]
    steps = min(decoding.limit, max(answer.tokens for answer in answers) + 1)
    return Batch(len(texts), steps, wall, sum(times.values()) / 1e6, kernels)


def _print(batch: Batch) -> None:
    table = Table(COLUMNS)
    busy, wall = (1e6 * seconds / batch.steps for seconds in (batch.busy_seconds, batch.wall_seconds))
    table.head(f"{batch.rows} rows, {batch.steps} steps of {wall:,.0f} us, kernels run for {busy:,.0f} us of each")
    for kernel in batch.kernels[:MOST]:
        table.row(f"{kernel.microseconds / batch.steps:,.1f}", f"{kernel.runs / batch.steps:,.1f}", kernel.name[:90])


if __name__ == "__main__":
    main()
