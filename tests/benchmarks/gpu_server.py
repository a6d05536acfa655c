"""Translation servers on a GPU under load, on the same weights: Triptych, also with static batching, CTranslate2, PyTorch.

    python tests/benchmarks/gpu_server.py CHECKPOINT REPOSITORY PAIRS
        [--device cuda] [--seconds 5] [--rounds 1] [--limit-ms 100] [--length N] [--cpus 8] [--generators 4]
        [--servers Triptych,CTranslate2,PyTorch] [--json FILE]

server.py tells how it is measured: a closed loop, then Poisson arrivals at rising rates until the 99th percentile of the
latency exceeds `--limit-ms` twice in a row. Here the load comes from several processes on CPUs of their own, where there are
any; each server starts on the first `--cpus`. The thin servers (thin_server.py) batch up to `--max-batch` requests;
CTranslate2, in float16, has one with one batch at a time on the GPU and one with two; PyTorch's (gpu_torch.py) takes minutes to
compile. A server that cannot start stands at the end with the reason.

A rehearsal on the CPU: --device cpu --cpus 1 --generators 1.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import cores
import gpu_machine
from candidate import Decoding
from climb import Climb
from examples import read_examples
from gpu_cuda12 import environment
from gpu_load import Generators, generators
from load import Request, requests_for
from process import ServerProcess, serve_arguments
from report import Table, words, write_json
from server import climbed, summary
from triptych_peer import find_model

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_training.checkpoints.translation import load_checkpoint

HERE = Path(__file__).parent
OWN, STATIC, PEER, TORCH = "Triptych", "Triptych static", "CTranslate2", "PyTorch"
SERVERS = (OWN, STATIC, PEER, TORCH)
USUAL = (OWN, STATIC, PEER)
LANES = (1, 2)  # batches at once, of CTranslate2
START, TOP = 0.3, 1.2  # first rate, of the slowest server's closed loop; last, of the fastest one's
WARM_TEXTS = 2  # the shortest and the longest


@dataclass(frozen=True)
class Scene:
    """What is served, and how."""

    checkpoint: Path
    repository: Path
    model: str
    converted: Path  # CTranslate2's folder
    warm: Path  # texts to begin with
    device: str
    decoding: Decoding
    max_batch: int
    wait_ms: float
    slots: int
    serve_options: Sequence[str]

    @property
    def on_gpu(self) -> bool:
        """Not a rehearsal."""
        return self.device != "cpu"


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.argument("pairs")
@click.option("--model", default="", help="The model's name in the repository.  [default: the first that translates]")
@click.option("--device", default="cuda", show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--length", default=None, type=click.IntRange(min=1), help="Exactly so many tokens a translation.")
@click.option("--cpus", default=8, show_default=True, help="Of the servers.")
@click.option("--generators", "processes", default=4, show_default=True, help="Processes that send requests.")
@click.option("--servers", "names", default=",".join(USUAL), show_default=True, help=f"Of {', '.join(SERVERS)}.")
@click.option("--sentences", default=2048, show_default=True)
@click.option("--in-flight", default=256, show_default=True, help="In the closed loop.")
@click.option("--seconds", default=5.0, show_default=True, help="Of one rate.")
@click.option("--rounds", default=1, show_default=True, help="Of the closed loop and of each rate; medians count.")
@click.option("--start", default=None, type=float, help="The lowest rate.  [default: 0.3 of the slowest closed loop]")
@click.option("--factor", default=1.25, show_default=True, type=click.FloatRange(min=1, min_open=True))
@click.option("--limit-ms", default=100.0, show_default=True, help="Of the 99th percentile.")
@click.option("--max-batch", default=128, show_default=True, help="Of the thin servers.")
@click.option("--wait-ms", default=2.0, show_default=True, help="That the thin servers wait for company.")
@click.option("--slots", default=256, show_default=True, help="Of Triptych.")
@click.option("--serve-options", default="", help="More of `triptych serve`.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(  # noqa: PLR0917 - click passes them by name
    checkpoint: Path,
    repository: Path,
    pairs: str,
    model: str,
    device: str,
    beam: int,
    length: int | None,
    cpus: int,
    processes: int,
    names: str,
    sentences: int,
    in_flight: int,
    seconds: float,
    rounds: int,
    start: float | None,
    factor: float,
    limit_ms: float,
    max_batch: int,
    wait_ms: float,
    slots: int,
    serve_options: str,
    json_file: Path | None,
) -> None:
    held, others = cores.choose(min(cpus, len(os.sched_getaffinity(0))))
    loaded, entry = load_checkpoint(checkpoint), find_model(repository, model)
    manifest = open_bundle(entry.folder).manifest_of(TranslationManifest)
    texts = read_examples(pairs, sentences, loaded.tokenizer, manifest.limits.max_source_tokens).sources
    decoding = Decoding(beam, length or manifest.generation.max_length, length is not None)
    requests = requests_for(texts, entry.name, decoding)
    about: dict[str, object] = {"machine": gpu_machine.describe(device)}
    about["generator's CPUs"] = "of its own" if others else "the servers'"
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        scene = Scene(
            checkpoint,
            repository,
            entry.name,
            work / "ctranslate2",
            _warm_texts(work, texts),
            device,
            decoding,
            max_batch,
            wait_ms,
            slots,
            serve_options.split(),
        )
        addresses = _start(scene, words(names, SERVERS, "--servers"), held, stack, refused)
        cores.pin(others or held)
        crowd = stack.enter_context(generators(processes, texts, entry.name, decoding))
        closed = _closed(crowd, addresses, requests, in_flight, rounds)
        plan = Climb(start or START * min(closed.values()), factor, TOP * max(closed.values()), seconds, rounds, limit_ms)
        rungs = list(climbed(addresses, requests, plan, crowd.open_loop))
    best = summary(rungs, limit_ms)
    for name, reason in refused.items():
        click.echo(f"{name}: {reason}")
    if json_file:
        write_json(json_file, {**about, "closed loop": closed, "highest rates": best, "refused": refused}, rungs)


def _start(
    scene: Scene, names: Sequence[str], held: frozenset[int], stack: ExitStack, refused: dict[str, str]
) -> dict[str, str]:
    """Addresses by name, of those that start.

    Raises:
        click.ClickException: none does.
    """
    variables: Mapping[str, str] = {}
    if PEER in names:
        if reason := _convert(scene):
            refused[PEER], names = reason, [name for name in names if name != PEER]
        elif scene.on_gpu:
            variables, _ = environment(scene.warm.parent)
    addresses: dict[str, str] = {}
    for name, arguments in _commands(scene, names).items():
        try:
            with cores.held(held), _environment(variables if name.startswith(PEER) else {}):
                addresses[name] = stack.enter_context(ServerProcess(arguments)).address
        except RuntimeError as error:
            refused[name] = str(error).strip().splitlines()[-1]
    if not addresses:
        raise click.ClickException(f"no server has started: {refused}")
    return addresses


def _commands(scene: Scene, names: Sequence[str]) -> dict[str, list[str]]:
    """Arguments of the Python interpreter by name."""
    thin, device = str(HERE / "thin_server.py"), ["--device", scene.device] if scene.on_gpu else []
    slots = ["--slots", str(scene.slots)]
    decoding = scene.decoding
    common = ["--beam", str(decoding.beam), "--limit", str(decoding.limit), *(["--exact"] if decoding.exact else [])]
    common += ["--max-batch", str(scene.max_batch), "--wait-ms", str(scene.wait_ms), "--warm", str(scene.warm), *device]
    commands: dict[str, list[str]] = {}
    if OWN in names:
        options = [*device, *slots, *scene.serve_options]
        commands[OWN] = serve_arguments(str(scene.repository), scene.model, "fp16", options)
    if STATIC in names:
        commands[STATIC] = [thin, "static", str(scene.repository), "--model", scene.model, "--precision", "fp16", *common]
    if PEER in names:
        kind = "float16" if scene.on_gpu else "fp32"
        for lanes in LANES:
            shape = ["--workers", str(lanes), "--precision", kind]
            commands[f"{PEER} {lanes}"] = [thin, "ctranslate2", str(scene.converted), *shape, *common]
    if TORCH in names:
        commands[TORCH] = [thin, "pytorch", str(scene.checkpoint), *common]
    return commands


def _closed(
    crowd: Generators, addresses: Mapping[str, str], requests: Sequence[Request], in_flight: int, rounds: int
) -> dict[str, float]:
    """Sentences a second by name; printed too."""
    seconds: dict[str, list[float]] = {name: [] for name in addresses}
    for address in addresses.values():
        crowd.closed_loop(address, requests[:in_flight], in_flight)
    for _ in range(rounds):
        for name, address in addresses.items():
            seconds[name].append(crowd.closed_loop(address, requests, in_flight))
    speeds = {name: len(requests) / statistics.median(values) for name, values in seconds.items()}
    table = Table({"": -18, "sentences/s": 11})
    table.head(f"closed loop, {in_flight} in flight")
    for name, speed in speeds.items():
        table.row(name, f"{speed:,.1f}")
    return speeds


def _warm_texts(work: Path, texts: Sequence[str]) -> Path:
    file, ordered = work / "warm.json", sorted(texts, key=len)
    file.write_text(json.dumps([ordered[0], ordered[-1]][:WARM_TEXTS]), encoding="utf-8")
    return file


def _convert(scene: Scene) -> str:
    """Write CTranslate2's folder; what went wrong, or nothing."""
    command = [sys.executable, str(HERE / "peers.py"), str(scene.checkpoint), str(scene.converted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started within have these too."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


if __name__ == "__main__":
    main()
