"""Translation servers under load, on the same weights and CPUs: Triptych, also with static batching, and CTranslate2.

    python tests/benchmarks/server.py CHECKPOINT REPOSITORY PAIRS
        [--precision int8] [--beam 1] [--cpus 2] [--seconds 10] [--rounds 1] [--rates 100,200] [--length N] [--json FILE]

First a closed loop, always `--in-flight` requests of one sentence, against one call of all sentences in process. Then Poisson
arrivals (fixed seeds) at rising rates; latency counts from when a request was due, so that a server that stalls pays for all
who wait meanwhile. A server is out after two rates in a row with a 99th percentile above `--limit-ms`, or with a request that
failed. All servers run all the time, each in a process of its own on the first `--cpus` CPUs, and are asked in turns. The
load generator has the other CPUs, if there are any; otherwise it shares theirs, for all alike.

The thin gRPC servers (thin_server.py) batch up to `--max-batch` requests after a short wait; CTranslate2 has one for each split
of the CPUs into workers and threads, with the back end that is fastest here. Needs `pip install ctranslate2`.
"""

import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import click
import cores
import isa
import machine
from candidate import Decoding
from climb import Climb, Generate, Rung, climb, highest
from examples import read_examples
from load import Request, closed_loop, open_loop, requests_for
from process import TimerProcess
from report import Table, words, write_json
from servers import OWN, PEER, STATIC, Scenario, in_process, running
from triptych_peer import find_model

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_training.checkpoints.translation import load_checkpoint

IN_PROCESS = "Triptych in process"
CALIBRATION_SENTENCES = 64
START, TOP = 0.25, 1.5  # first rate, of the slowest server's closed loop; last, of the fastest one's
SERVERS = (OWN, STATIC, PEER)
COLUMNS = {
    "rate/s": 8,
    "server": -18,
    "p50 ms": 9,
    "p90 ms": 9,
    "p99 ms": 9,
    "answers/s": 9,
    "failed": 6,
    "generator late ms": 17,
}


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.argument("pairs")
@click.option("--model", default="", help="The model's name in the repository.  [default: the first that translates]")
@click.option("--precision", default="int8", show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--length", default=None, type=click.IntRange(min=1), help="Exactly so many tokens a translation.")
@click.option("--cpus", default=2, show_default=True, help="Of the servers.")
@click.option("--servers", "names", default=",".join(SERVERS), show_default=True)
@click.option("--sentences", default=512, show_default=True)
@click.option("--in-flight", default=64, show_default=True, help="In the closed loop.")
@click.option("--seconds", default=10.0, show_default=True, help="Of one rate.")
@click.option("--rounds", default=1, show_default=True, help="Of the closed loop and of each rate; medians count.")
@click.option("--start", default=None, type=float, help="The lowest rate.  [default: a quarter of the slowest closed loop]")
@click.option(
    "--factor", default=1.2, show_default=True, type=click.FloatRange(min=1, min_open=True), help="From rate to rate."
)
@click.option("--limit-ms", default=200.0, show_default=True, help="Of the 99th percentile.")
@click.option("--max-batch", default=32, show_default=True, help="Of the thin servers.")
@click.option("--wait-ms", default=2.0, show_default=True, help="That the thin servers wait for company.")
@click.option("--slots", default=None, type=click.IntRange(min=1), help="Of a worker of Triptych.  [default: its own]")
@click.option("--serve-options", default="", help="More of `triptych serve`.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(  # noqa: PLR0917 - click passes them by name
    checkpoint: Path,
    repository: Path,
    pairs: str,
    model: str,
    precision: str,
    beam: int,
    length: int | None,
    cpus: int,
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
    slots: int | None,
    serve_options: str,
    json_file: Path | None,
) -> None:
    held, others = cores.choose(cpus)
    cores.pin(held)  # until the load is generated
    loaded, entry = load_checkpoint(checkpoint), find_model(repository, model)
    manifest = open_bundle(entry.folder).manifest_of(TranslationManifest)
    texts = read_examples(pairs, sentences, loaded.tokenizer, manifest.limits.max_source_tokens).sources
    decoding = Decoding(beam, length or manifest.generation.max_length, length is not None)
    requests, chosen = requests_for(texts, entry.name, decoding), words(names, SERVERS, "--servers")
    with tempfile.TemporaryDirectory() as work:
        converted, file = Path(work) / "ctranslate2", Path(work) / "texts.json"
        file.write_text(json.dumps(texts), encoding="utf-8")
        environment = isa.prepare(checkpoint, converted, [precision], texts[:CALIBRATION_SENTENCES], decoding.limit)
        about = {"machine": machine.describe(), "CTranslate2 back end": environment or "its own choice"}
        about["generator's CPUs"] = "of its own" if others else "the servers'"
        scenario = Scenario(
            repository, entry.name, converted, precision, decoding, held, max_batch, wait_ms, slots, serve_options.split()
        )
        with running(scenario, chosen) as addresses, closing(in_process(scenario, file)) as timer:
            cores.pin(others or held)
            click.echo("\n".join(f"{name}: {value}" for name, value in about.items()))
            closed = _closed(addresses, requests, timer, in_flight, rounds)
            served = [speed for name, speed in closed.items() if name != IN_PROCESS]
            plan = Climb(start or START * min(served), factor, TOP * max(served), seconds, rounds, limit_ms)
            rungs = list(climbed(addresses, requests, plan))
    best = summary(rungs, limit_ms)
    if json_file:
        write_json(json_file, {**about, "closed loop": closed, "highest rates": best}, rungs)


def _closed(
    addresses: Mapping[str, str], requests: Sequence[Request], timer: TimerProcess, in_flight: int, rounds: int
) -> dict[str, float]:
    """Sentences a second by name; printed too."""
    seconds: dict[str, list[float]] = {name: [] for name in (IN_PROCESS, *addresses)}
    for address in addresses.values():
        closed_loop(address, requests[:in_flight], in_flight)
    for _ in range(rounds):
        seconds[IN_PROCESS].append(timer.measure())
        for name, address in addresses.items():
            seconds[name].append(closed_loop(address, requests, in_flight))
    speeds = {name: len(requests) / statistics.median(values) for name, values in seconds.items()}
    table = Table({"": -18, "sentences/s": 11, "of in process": 13})
    table.head(f"closed loop, {in_flight} in flight")
    for name, speed in speeds.items():
        table.row(name, f"{speed:,.1f}", speed / speeds[IN_PROCESS])
    return speeds


def climbed(
    addresses: Mapping[str, str], requests: Sequence[Request], plan: Climb, generate: Generate = open_loop
) -> Iterator[Rung]:
    """The rungs; printed as they come."""
    table = Table(COLUMNS)
    table.head(f"Poisson arrivals, {plan.seconds:g} s a rate")
    for rung in climb(addresses, requests, plan, generate):
        milliseconds = (f"{value:,.1f}" for value in (rung.p50, rung.p90, rung.p99))
        table.row(f"{rung.rate:,.1f}", rung.server, *milliseconds, f"{rung.throughput:,.1f}", rung.failed, rung.lag)
        yield rung


def summary(rungs: Sequence[Rung], limit_ms: float) -> dict[str, float]:
    """The highest rates; printed too, with what they are of the best CTranslate2's."""
    best = highest(rungs, limit_ms)
    peer = max((rate for name, rate in best.items() if name.startswith(PEER)), default=0.0)
    table = Table({"": -18, "rate/s": 8, "ratio": 5})
    table.head(f"highest rate with p99 <= {limit_ms:g} ms")
    for name, rate in best.items():
        table.row(name, f"{rate:,.1f}", rate / peer if peer else None)
    return best


if __name__ == "__main__":
    main()
