"""Translation servers under load, with the same weights and CPUs: Triptych, also with static batching, CTranslate2, PyTorch.

    python tests/benchmarks/server.py CHECKPOINT REPOSITORY PAIRS
        [--precision int8] [--beam 1] [--cpus 2] [--seconds 10] [--rounds 1] [--start 100] [--length N] [--json FILE]

First a closed loop with `--in-flight` requests of one sentence, compared with one call of all sentences in process. Then
Poisson arrivals (fixed seeds) at rising rates; latency counts from the scheduled moment, so that a server that stalls pays for
all requests that wait meanwhile. A server is out after two rates in a row with a 99th percentile above `--limit-ms` or a failed
request. All servers run all the time, each in a process of its own on the first `--cpus` CPUs, and take turns. The load comes
from `--generators` processes on the other CPUs, if there are any; otherwise they share the servers' CPUs.

The thin gRPC servers (thin_server.py) batch up to `--max-batch` requests after a short wait. On the CPU CTranslate2 has one for
each division of the CPUs into workers and threads, with the back end that is fastest here. On a GPU (gpu_server.py) it computes
in float16 and has one with one batch at a time and one with two; PyTorch's (candidates/torch_compiled.py) takes minutes to
compile. A server that cannot start is listed at the end with the reason. CTranslate2 needs `pip install ctranslate2`.
"""

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import click
from candidates.candidate import Decoding
from candidates.contest import read_examples
from candidates.ctranslate2_backend import cuda_environment
from candidates.remote import RemoteError, Setup, choose_backend, open_candidates
from candidates.triptych_model import find_model
from report import machine
from report.tables import Table, translation_options, words, write_json
from servers import cpus as cpu_sets
from servers.load import Generators, generators, translation_requests
from servers.rates import RatePlan, RateResult, highest, raise_rates
from servers.start import IN_PROCESS, OWN, PEER, STATIC, TORCH, Scenario, start_servers

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_training.checkpoints.translation import load_checkpoint

CALIBRATION_SENTENCES = 64
START, TOP = 0.25, 1.5  # first rate, of the slowest server's closed loop; last rate, of the fastest one's
SERVERS = (IN_PROCESS, OWN, STATIC, PEER, TORCH)
COLUMNS = {"rate/s": 8, "server": -18, "p50 ms": 9, "p90 ms": 9, "p99 ms": 9, "responses/s": 11, "failed": 6}
COLUMNS |= {"generator late ms": 17}


@click.command()
@translation_options
@click.argument("pairs")
@click.option("--precision", default="int8", show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--cpus", default=2, show_default=True, help="Of the servers.")
@click.option("--generators", "processes", default=1, show_default=True, help="Processes that send requests.")
@click.option("--servers", "names", default=",".join(SERVERS[:4]), show_default=True, help=f"Of {', '.join(SERVERS)}.")
@click.option("--sentences", default=512, show_default=True)
@click.option("--in-flight", default=64, show_default=True, help="In the closed loop.")
@click.option("--seconds", default=10.0, show_default=True, help="Of one rate.")
@click.option("--rounds", default=1, show_default=True, help="Of the closed loop and of each rate; medians count.")
@click.option("--start", default=None, type=float, help="Lowest rate.  [default: a quarter of the slowest closed loop]")
@click.option(
    "--factor", default=1.2, show_default=True, type=click.FloatRange(min=1, min_open=True), help="From rate to rate."
)
@click.option("--limit-ms", default=200.0, show_default=True, help="Of the 99th percentile.")
@click.option("--max-batch", default=32, show_default=True, help="Of the thin servers.")
@click.option("--wait-ms", default=2.0, show_default=True, help="Wait of the thin servers for a batch.")
def main(
    *,
    checkpoint: Path,
    repository: Path,
    pairs: str,
    device: str,
    model: str,
    precision: str,
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
    slots: int | None,
    serve_options: str,
    json_file: Path | None,
) -> None:
    """Run the benchmark."""
    held, others = cpu_sets.choose(min(cpus, len(os.sched_getaffinity(0))))
    cpu_sets.pin(held)  # until the load is generated
    loaded, entry = load_checkpoint(checkpoint), find_model(repository, model)
    manifest = open_bundle(entry.folder).manifest_of(TranslationManifest)
    texts = read_examples(pairs, sentences, loaded.tokenizer, manifest.limits.max_source_tokens).sources
    decoding = Decoding(beam, length or manifest.generation.max_length, length is not None)
    chosen, refused, variables = words(names, SERVERS, "--servers"), dict[str, str](), dict[str, str]()
    about: dict[str, object] = {"machine": machine.describe(device), "refused": refused}
    about["generator's CPUs"] = "of its own" if others else "the servers'"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        setup = Setup(
            checkpoint,
            repository,
            entry.name,
            converted=work / "ctranslate2",
            work=work,
            device=device,
            cpus=len(held),
            slots=slots or 0,
            serve_options=serve_options.split(),
        )
        if PEER in chosen:
            try:
                about["CTranslate2 back end"] = _prepare_peer(setup, precision, texts, decoding.limit)
            except RemoteError as error:
                refused[PEER] = str(error)
                chosen.remove(PEER)
            variables = cuda_environment(work)[0] if device != "cpu" else {}
        warm = _warm_texts(work, texts) if device != "cpu" else None
        scenario = Scenario(setup, warm, precision, decoding, max_batch, wait_ms)
        addresses = start_servers(scenario, chosen, held, stack, refused, variables)
        whole = None
        if IN_PROCESS in chosen:
            for candidate in open_candidates(setup, ["triptych"], precision, refused):
                own = stack.enter_context(closing(candidate))
                own.translate(texts, decoding)
                whole = lambda own=own: own.seconds([texts], decoding)  # noqa: E731
        cpu_sets.pin(others or held)
        click.echo("\n".join(f"{name}: {value}" for name, value in about.items()))
        requests = partial(translation_requests, texts, entry.name, decoding)
        load = stack.enter_context(generators(processes, requests, len(texts)))
        closed = _closed(addresses, load, whole, in_flight, rounds)
        served = [closed[name] for name in addresses]
        plan = RatePlan(start or START * min(served), factor, TOP * max(served), seconds, rounds, limit_ms)
        results = _raise_rates(addresses, load, plan)
    best = _summarize(results, limit_ms)
    for name, reason in refused.items():
        click.echo(f"{name}: {reason}")
    write_json(json_file, {**about, "closed loop": closed, "highest rates": best}, results)


def _prepare_peer(setup: Setup, precision: str, texts: Sequence[str], limit: int) -> str:
    """Convert the checkpoint to CTranslate2, and on the CPU choose the back end.

    Raises:
        RemoteError: CTranslate2 does not run.
    """
    if setup.device == "cpu" and precision != "fp16":
        return choose_backend(setup, [precision], texts[:CALIBRATION_SENTENCES], limit) or "its own choice"
    refused: dict[str, str] = {}
    for candidate in open_candidates(setup, ["ctranslate2"], precision, refused):
        candidate.close()
    if refused:
        raise RemoteError(refused[PEER])
    return "its own choice"


def _closed(
    addresses: Mapping[str, str], load: Generators, whole: Callable[[], float] | None, in_flight: int, rounds: int
) -> dict[str, float]:
    """Return and print sentences per second by name."""
    runs: dict[str, Callable[[], float]] = {IN_PROCESS: whole} if whole else {}
    runs |= {name: lambda at=address: load.closed_loop(at, in_flight) for name, address in addresses.items()}
    for address in addresses.values():
        load.closed_loop(address, in_flight, in_flight)  # warms up
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    speeds = {name: load.requests / statistics.median(values) for name, values in seconds.items()}
    table = Table({"": -20, "sentences/s": 11, "of in process": 13})
    table.head(f"closed loop, {in_flight} in flight")
    for name, speed in speeds.items():
        table.row(name, f"{speed:,.1f}", speed / speeds[IN_PROCESS] if whole else None)
    return speeds


def _raise_rates(addresses: Mapping[str, str], load: Generators, plan: RatePlan) -> list[RateResult]:
    """Return and print the results of all rates."""
    table, results = Table(COLUMNS), []
    table.head(f"Poisson arrivals, {plan.seconds:g} s a rate")
    for result in raise_rates(addresses, load, plan):
        milliseconds = (f"{value:,.1f}" for value in (result.p50, result.p90, result.p99))
        throughput = f"{result.throughput:,.1f}"
        table.row(f"{result.rate:,.1f}", result.server, *milliseconds, throughput, result.failed, result.lag)
        results.append(result)
    return results


def _summarize(results: Sequence[RateResult], limit_ms: float) -> dict[str, float]:
    """Return and print the highest rates, with their ratios to the best CTranslate2's."""
    best = highest(results, limit_ms)
    peer = max((rate for name, rate in best.items() if name.startswith(PEER)), default=0.0)
    table = Table({"": -18, "rate/s": 8, "ratio": 5})
    table.head(f"highest rate with p99 <= {limit_ms:g} ms")
    for name, rate in best.items():
        table.row(name, f"{rate:,.1f}", rate / peer if peer else None)
    return best


def _warm_texts(work: Path, texts: Sequence[str]) -> Path:
    """Write the shortest and the longest text."""
    file, ordered = work / "warm.json", sorted(texts, key=len)
    file.write_text(json.dumps([ordered[0], ordered[-1]]), encoding="utf-8")
    return file


if __name__ == "__main__":
    main()
