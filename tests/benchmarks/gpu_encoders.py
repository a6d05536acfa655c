"""The encoder families on a GPU: PyTorch compiled, ONNX Runtime by hand, the engine in process, the server through gRPC.

    python tests/benchmarks/gpu_encoders.py CHECKPOINT REPOSITORY
        [--device cuda] [--tokens 128] [--count 4096] [--batches 32,64,128,256] [--rounds 3]
        [--in-flight 256] [--per-request 1,16] [--clients 4] [--json FILE]

CHECKPOINT is what training (or base.py) wrote, REPOSITORY holds its bundle with precision fp16. Texts are random words, one of
them masked; images are random JPEG files of photographs' size; or --texts, --images.

Everything begins with text or file bytes and ends with ranked answers on the host, except the rows "arrays alone", which begin
with arrays that were made before. Both ways by hand prepare the next batches in a pool of threads while one runs, with all
inputs sorted by length beforehand, at the batch size that proves fastest. "gRPC" always has `--in-flight` inputs on their way,
in requests of so many each, from `--clients` processes. Candidates take turns in every round; the table has medians.

"ratio" is to the best of the two by hand. "floor" is the share of the time that bytes and operations would need at the speeds
measured in this run (roofline.py), in percent; "same" is how many answers (percent) are as ONNX Runtime's.

A rehearsal on the CPU: --device cpu --tiny.
"""

import io
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from candidates.encoder_models import CompiledEncoder, EncoderModel, OnnxRuntimeEncoder
from candidates.encoder_tasks import TOP_K, EncoderTask, ImageTask, TextTask, encoder_requests, read_images, read_texts
from numpy.typing import NDArray
from PIL import Image
from report import machine
from report.tables import Table, numbers, write_json
from report.work import NOTHING, Work, bert, graph_kernels, vit
from roofline import LARGE, TINY, Ceilings, describe, measure
from servers.load import Generators, generators

from triptych_bench.server.process import TriptychServer
from triptych_export.parity.comparison import chunks
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import ImageManifest, TextManifest
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.repository.repository import VersionFolder, newest_versions
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.device_selection import parse_devices
from triptych_training.checkpoints.folder import TOKENIZER

ENGINE = "Triptych in process"
ALONE = "arrays alone"
AHEAD = 4  # batches prepared while one runs, or calls of the engine at once
CALL_INPUTS = 256  # of a call of the engine
SEARCH_BATCHES = 4  # for the search of the best size
PHOTO = (500, 375)  # pixels
COLUMNS = {"candidate": -44, "inputs/s": 12, "ratio": 6, "floor": 6, "launches": 8, "same": 6, "settings": -30}
Run = Callable[[], NDArray[np.int64] | None]


@dataclass(frozen=True)
class Row:
    """Row of the table."""

    candidate: str
    per_second: float
    ratio: float | None  # to the best by hand
    share: float  # of the floor, 1.0 at best
    share_with_launches: float
    same: float | None  # percent
    seconds: tuple[float, ...]
    settings: str


@dataclass(frozen=True)
class Plan:
    """Inputs and options of the benchmark."""

    task: EncoderTask
    inputs: Sequence[Any]  # sorted by length
    batches: Sequence[int]
    rounds: int
    device: str
    precision: str
    compiles: bool


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--device", default="cuda", show_default=True)
@click.option("--precision", default="fp16", show_default=True)
@click.option("--texts", type=click.Path(path_type=Path), default=None)
@click.option("--images", type=click.Path(path_type=Path), default=None)
@click.option("--tokens", default=128, show_default=True, help="Of a text.")
@click.option("--count", default=4096, show_default=True, help="Inputs.")
@click.option("--batches", default="32,64,128,256", show_default=True, help="To choose from, by hand.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--in-flight", default=256, show_default=True, help="Inputs.")
@click.option("--per-request", default="1,16", show_default=True, help="Inputs of a request.")
@click.option("--clients", default=4, show_default=True, help="Processes that send requests.")
@click.option("--serve-options", default="", help="More of `triptych serve`.")
@click.option("--compile/--no-compile", "compiles", default=True, help="torch.compile.")
@click.option("--tiny", is_flag=True, help="To rehearse: nothing is compiled, ceilings mean nothing.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(
    *,
    checkpoint: Path,
    repository: Path,
    device: str,
    precision: str,
    texts: Path | None,
    images: Path | None,
    tokens: int,
    count: int,
    batches: str,
    rounds: int,
    in_flight: int,
    per_request: str,
    clients: int,
    serve_options: str,
    compiles: bool,
    tiny: bool,
    json_file: Path | None,
) -> None:
    kind = "text" if (checkpoint / TOKENIZER).exists() else "image"
    entry = _find(repository, kind)
    task: Any = TextTask(checkpoint, entry.folder) if kind == "text" else ImageTask(checkpoint, entry.folder)
    inputs: Sequence[Any]
    if kind == "text":
        inputs = read_texts(texts, count, tokens, task) if texts else random_texts(task, count, tokens)
    else:
        inputs = read_images(images, count) if images else random_images(count)
    sizes = task.sizes(inputs)
    inputs = [inputs[index] for index in sorted(range(len(inputs)), key=lambda index: sizes[index])]
    ceilings = measure(torch.device(device), TINY if tiny else LARGE)
    plan = Plan(task, inputs, numbers(batches), rounds, device, precision, compiles and not tiny)
    graph = task.bundle.path(task.bundle.manifest.precisions[precision].graph)
    about = {"machine": machine.describe(device), "ceilings": asdict(ceilings), "inputs": len(inputs)}
    about |= {"tokens": statistics.mean(task.sizes(inputs)), "nodes of the graph that start a kernel": graph_kernels(graph)}
    click.echo(f"{describe(ceilings)}\n{len(inputs)} inputs of {about['tokens']:,.1f} tokens")
    refused: dict[str, str] = {}
    options = ["--models", str(repository), "--model", entry.name, "--precision", precision, "--device", device]
    options += serve_options.split()
    with ExitStack() as stack:
        runs, settings, batch = by_hand(plan, graph, refused)
        runs[ENGINE] = stack.enter_context(in_process(plan))
        server = stack.enter_context(TriptychServer(options))
        for size in numbers(per_request):
            name = f"Triptych gRPC, {size} a request, {in_flight} in flight"
            load = generators(
                max(1, min(clients, in_flight // size)), partial(encoder_requests, kind, inputs, size), -(-count // size)
            )
            runs[name] = partial(_served, stack.enter_context(load), server.address, in_flight // size)
        rows = list(contest(plan, runs, settings, ceilings, _work(plan, batch)))
    for name, reason in refused.items():
        click.echo(f"{name}: {reason}")
    write_json(json_file, {**about, "refused": refused}, rows)


def _find(repository: Path, kind: str) -> VersionFolder:
    """Return the first model for texts or images."""
    wanted = TextManifest if kind == "text" else ImageManifest
    for entry in newest_versions(repository):
        if isinstance(open_bundle(entry.folder).manifest, wanted):
            return entry
    raise click.UsageError(f"{repository}: no {kind} model")


def random_texts(task: Any, count: int, tokens: int) -> list[str]:
    """Make texts of exactly so many tokens, including [CLS] and [SEP]."""
    rng = np.random.default_rng(1)
    vocabulary = task.checkpoint.tokenizer.get_vocab()
    words = [token for token in sorted(vocabulary) if token.isalpha() and token.isascii() and token.islower()]
    whole = [word for word in words if len(task.checkpoint.tokenizer.encode(word, add_special_tokens=False).ids) == 1]
    texts = []
    for _ in range(count):
        chosen = [str(word) for word in rng.choice(whole, tokens - 2)]
        chosen[rng.integers(len(chosen))] = "[MASK]"
        texts.append(" ".join(chosen))
    return texts


def random_images(count: int) -> list[bytes]:
    """Make different JPEG files."""
    rng = np.random.default_rng(1)
    images = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        file = io.BytesIO()
        coarse.resize(PHOTO, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        images.append(file.getvalue())
    return images


def by_hand(plan: Plan, graph: Path, refused: dict[str, str]) -> tuple[dict[str, Run], dict[str, str], int]:
    """Return runs over all inputs at the best batch size and their settings, by name, and the last best size."""
    peers: dict[str, Callable[[], EncoderModel]] = {
        "ONNX Runtime": lambda: OnnxRuntimeEncoder(graph, plan.task.outputs, plan.device),
        "PyTorch": lambda: CompiledEncoder(plan.task, plan.device, plan.compiles, TOP_K),
    }
    runs: dict[str, Run] = {}
    settings: dict[str, str] = {}
    batch = max(plan.batches)
    for name, open_peer in peers.items():
        try:
            peer = open_peer()
            batch = _best_batch(plan, peer)
        except Exception as error:  # reported with the table
            refused[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        parts = chunks(plan.inputs, batch)
        runs[name] = _whole(plan, peer, parts)
        runs[f"{name}, {ALONE}"] = _prepared(peer, [peer.prepare(plan.task.arrays(part)) for part in parts])
        settings |= dict.fromkeys((name, f"{name}, {ALONE}"), f"batch {batch}, {peer.settings}")
    return runs, settings, batch


def _best_batch(plan: Plan, peer: EncoderModel) -> int:
    """Find the fastest batch size with prepared arrays; this also compiles and captures the shapes."""
    speeds = {}
    for batch in plan.batches:
        parts = chunks(plan.inputs, batch)
        spread = parts[:: max(1, len(parts) // SEARCH_BATCHES)]
        run = _prepared(peer, [peer.prepare(plan.task.arrays(part)) for part in spread])
        run()
        speeds[batch] = sum(map(len, spread)) / _seconds(run)
    return max(speeds, key=speeds.__getitem__)


def _prepared(peer: EncoderModel, batches: Sequence[Any]) -> Run:
    return lambda: np.concatenate([peer.run(batch) for batch in batches])


def _whole(plan: Plan, peer: EncoderModel, parts: Sequence[Sequence[Any]]) -> Run:
    """Return a run from texts or bytes that prepares some batches ahead of the running one."""

    def prepare(part: Sequence[Any]) -> Any:
        return peer.prepare(plan.task.arrays(part))

    def run() -> NDArray[np.int64]:
        with ThreadPoolExecutor(min(AHEAD, usable_cpus())) as pool:
            waiting = [pool.submit(prepare, part) for part in parts[:AHEAD]]
            answers = []
            for index in range(len(parts)):
                batch = waiting.pop(0).result()
                if index + AHEAD < len(parts):
                    waiting.append(pool.submit(prepare, parts[index + AHEAD]))
                answers.append(peer.run(batch))
        return np.concatenate(answers)

    return run


@contextmanager
def in_process(plan: Plan) -> Iterator[Run]:
    """Engine in this process, called from several threads with a part of the inputs each."""
    engine, close = plan.task.engine(EncoderOptions(plan.precision, devices=parse_devices(plan.device)))

    def run() -> None:
        with ThreadPoolExecutor(AHEAD) as pool:
            deque(pool.map(engine, chunks(plan.inputs, CALL_INPUTS)), 0)

    try:
        yield run
    finally:
        close()


def _served(load: Generators, address: str, in_flight: int) -> None:
    load.closed_loop(address, in_flight)


def contest(plan: Plan, runs: dict[str, Run], settings: dict[str, str], ceilings: Ceilings, work: Work) -> Iterator[Row]:
    """Measure all rounds; yield and print the rows."""
    answers = {name: run() for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(plan.rounds):
        names = list(runs)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(_seconds(runs[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    hand = [medians[name] for name in settings if ALONE not in name]
    expected = answers.get("ONNX Runtime")
    table = Table(COLUMNS)
    table.head(f"{plan.task.kind}s, medians of {plan.rounds} rounds")
    for name, median in medians.items():
        given = answers[name]
        same = None if given is None or expected is None else 100 * float((given == expected).mean())
        row = Row(
            name,
            len(plan.inputs) / median,
            min(hand) / median if hand else None,
            ceilings.floor(work) / median,
            ceilings.floor_with_launches(work) / median,
            same,
            tuple(times[name]),
            settings.get(name, ""),
        )
        shares = f"{100 * row.share:.1f}", f"{100 * row.share_with_launches:.1f}"
        table.row(row.candidate, f"{row.per_second:,.1f}", row.ratio, *shares, row.same, row.settings)
        yield row


def _work(plan: Plan, batch: int) -> Work:
    """Return the work for all inputs, in batches of one size."""
    config, total = plan.task.checkpoint.model.config, NOTHING
    for part in chunks(plan.inputs, batch):
        total += bert(config, plan.task.sizes(part), len(part)) if plan.task.kind == "text" else vit(config, len(part))
    return total


def _seconds(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
