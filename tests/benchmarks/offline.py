"""Offline translation with the same trained weights, from text to text: Triptych and its peers.

    python tests/benchmarks/offline.py CHECKPOINT REPOSITORY --pairs FILE [--pairs FILE ...]
        [--beam 1,4] [--batches 1,8,32,128] [--precisions fp32,int8] [--cpus 1] [--sentences 512] [--rounds 5]
        [--candidates ctranslate2,triptych,grpc,pytorch] [--length N] [--clock cpu] [--json FILE]

CHECKPOINT is the output of `triptych train` (or base.py); REPOSITORY contains its bundle. FILE has source<TAB>target lines, or
is SOURCE::TARGET, two files; .gz and .xz too. The sentences are drawn with a fixed seed; sources too long for the model are
skipped and counted.

Every candidate has a process of its own and measures its own times; they take turns in every round, in changing order, so that
a noisy machine disturbs all equally. Speeds are medians of rounds. With `--clock cpu`, for a machine with other work, they are
by the CPU time of the candidates' processes (not for grpc, which computes in the server). A candidate that cannot be loaded or
fails is listed at the end with the reason. "ratio" is to CTranslate2 of the same precision, beam and batch, "PyTorch" to
PyTorch.

On the CPU everything runs on `--cpus` CPUs. CTranslate2 gets the back end, the division of the CPUs into workers and threads,
and the batch size that are fastest in a short calibration; all others run with their defaults. PyTorch
(eager, fp32) decodes greedily only.

On a GPU (gpu_offline.py) CTranslate2 computes in float16 and int8_float16. "PyTorch compiled" is scaled dot-product attention
over static caches, torch.compile, and a CUDA graph of the whole step, greedy only; "transformers" is `generate`. "floor" is the
share of the time that bytes and operations would need at the speeds measured in this run (roofline.py), in percent; "launches"
also counts the start of each kernel. Both are counted in fp16 for all candidates.

"same" is the percentage of sentences and tokens that equal fp32's: Triptych's own for Triptych, CTranslate2's for all others,
or Triptych's where CTranslate2 does not run. "difference" is Triptych's BLEU minus CTranslate2's, "p" the p-value of
sacreBLEU's paired bootstrap. With --length every translation has exactly so many tokens, for untrained weights (base.py), and
quality is not measured. CTranslate2 needs `pip install ctranslate2`.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import click
import torch
from candidates.candidate import CLOCK, Candidate, Decoding
from candidates.contest import Case, Examples, Measured, Texts, measure, read_examples, reference_texts
from candidates.remote import SPECS, RemoteError, Setup, choose_backend, open_candidates
from candidates.triptych_model import find_model
from report import machine
from report.quality import OfflineResult, results_of, signature
from report.tables import Table, numbers, translation_options, words, write_json
from report.work import NOTHING, Work, graph_kernels, translation
from roofline import LARGE, TINY, Ceilings, describe
from roofline import measure as measure_ceilings
from servers import cpus as cpu_sets

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint

PEER = "ctranslate2"
CPU_CANDIDATES = f"{PEER},triptych,grpc,pytorch"
CALIBRATION_SENTENCES = 64
BEAM_ROWS = 2  # beams per slot of an engine
COLUMNS = {"batch": 5, "beam": 4, "precision": -9, "candidate": -16, "sentences/s": 11, "tokens/s": 9, "ratio": 6}
COLUMNS |= {"PyTorch": 7, "floor": 6, "launches": 8, "BLEU": 6, "difference": 10, "p": 6, "same sentences": 14, "tokens": 6}
COLUMNS |= {"settings": -20}


@dataclass(frozen=True)
class Plan:
    """Cases and their measurement."""

    checkpoint: Checkpoint
    sets: Sequence[Examples]
    shapes: Sequence[tuple[Decoding, int]]
    calls: int  # 0: all
    rounds: int
    ceilings: Ceilings | None


@click.command()
@translation_options
@click.option("--pairs", multiple=True, required=True, help="Sentence pairs; repeatable.")
@click.option("--sentences", default=512, show_default=True, help="Of each file.")
@click.option("--calls", default=0, help="Maximum calls of a case.  [default: all]")
@click.option("--rounds", default=5, show_default=True)
@click.option("--cpus", default=1, show_default=True, help="0: no restriction.")
@click.option("--batches", default="1,8,32,128", show_default=True, help="Sentences of a call.")
@click.option("--beam", "beams", multiple=True, default=["1"], show_default=True, help="Repeatable, or with commas.")
@click.option("--precisions", "--precision", default="", help="[default: the bundle's]")
@click.option("--candidates", "names", default=CPU_CANDIDATES, show_default=True, help=f"Of {', '.join(SPECS)}.")
@click.option("--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True)
@click.option("--compile/--no-compile", "compiles", default=True, help="torch.compile.")
@click.option("--tiny", is_flag=True, help="Rehearsal of gpu_offline.py: nothing is compiled, ceilings mean nothing.")
def main(
    *,
    checkpoint: Path,
    repository: Path,
    device: str,
    model: str,
    pairs: Sequence[str],
    sentences: int,
    calls: int,
    rounds: int,
    cpus: int,
    batches: str,
    beams: Sequence[str],
    precisions: str,
    names: str,
    length: int | None,
    slots: int | None,
    serve_options: str,
    clock: str,
    compiles: bool,
    tiny: bool,
    json_file: Path | None,
) -> None:
    """Run the benchmark."""
    os.environ[CLOCK] = clock  # the workers inherit it
    if cpus:
        cpu_sets.pin(cpu_sets.choose(cpus)[0])
    loaded, entry = load_checkpoint(checkpoint), find_model(repository, model)
    bundle = open_bundle(entry.folder)
    manifest = bundle.manifest_of(TranslationManifest)
    chosen, available = words(names, list(SPECS), "--candidates"), sorted(manifest.precisions)
    wanted = words(precisions, available, "--precisions") or available
    sets = [read_examples(path, sentences, loaded.tokenizer, manifest.limits.max_source_tokens) for path in pairs]
    limit, sizes = length or manifest.generation.max_length, numbers(batches)
    decodings = [Decoding(beam, limit, length is not None) for text in beams for beam in numbers(text)]
    gpu = tiny or device != "cpu"
    ceilings = measure_ceilings(torch.device(device), TINY if tiny else LARGE) if gpu else None
    plan = Plan(loaded, sets, list(product(decodings, sizes)), calls, rounds, ceilings)
    refused: dict[str, str] = {}
    results: list[OfflineResult] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if gpu:
            slots = slots or max(sizes) * max(1, max(decoding.beam for decoding in decodings) // BEAM_ROWS)
        converted, options = work / "ctranslate2", serve_options.split()
        setup = Setup(
            checkpoint, repository, entry.name, converted, work, device, cpus or 1, slots or 0, compiles and not tiny, options
        )
        about: dict[str, object] = {"machine": machine.describe(device), "bleu": signature(), "refused": refused}
        about["sentences"] = {examples.name: len(examples.pairs) for examples in sets}
        about["skipped, too long"] = {examples.name: examples.skipped for examples in sets}
        if ceilings:
            graphs = manifest.precisions[wanted[0]]
            nodes = {name: graph_kernels(bundle.path(getattr(graphs, name))) for name in ("encoder", "step")}
            about |= {"ceilings": asdict(ceilings), "nodes of the graph that start a kernel": nodes}
            click.echo(describe(ceilings))
        elif PEER in chosen:
            texts = sets[0].sources[:CALIBRATION_SENTENCES]
            try:
                about["CTranslate2 back end"] = choose_backend(setup, wanted, texts, limit) or "its own choice"
            except RemoteError as error:
                refused["CTranslate2"] = str(error)
                chosen.remove(PEER)
        click.echo("\n".join(f"{name}: {value}" for name, value in about.items()))
        expected = {} if length else _references(setup, plan, decodings, PEER in chosen and not gpu, "fp32" in available)
        for precision in wanted:
            for result in _run(setup, plan, chosen, precision, expected, refused):
                results.append(result)
                write_json(json_file, about, results)  # after every row, in case the run is stopped
    write_json(json_file, about, results)
    for name, reason in refused.items():
        click.echo(f"{name}: {reason}")


def _references(setup: Setup, plan: Plan, decodings: Sequence[Decoding], peer: bool, own: bool) -> Texts:
    """Translate in fp32 on the CPU with CTranslate2 and Triptych, where available."""
    cpu = replace(setup, device="cpu", work=setup.work / "fp32")
    texts: Texts = {}
    for candidate in open_candidates(cpu, [*([PEER] if peer else []), *(["triptych"] if own else [])], "fp32", {}):
        texts |= reference_texts(candidate, plan.sets, decodings)
        candidate.close()
    return texts


def _run(
    setup: Setup, plan: Plan, names: Sequence[str], precision: str, expected: Texts, refused: dict[str, str]
) -> Iterator[OfflineResult]:
    """Yield and print the rows of a precision."""
    table = Table(COLUMNS)
    with ExitStack() as stack:
        candidates = []
        for candidate in open_candidates(setup, names, precision, refused):
            stack.callback(candidate.close)
            candidates.append(candidate)
        for examples in plan.sets:
            table.head(f"{examples.name}, {precision}, {setup.cpus} CPUs, medians of {plan.rounds} rounds")
            for decoding, batch in plan.shapes:
                case = Case(_part(examples, batch, plan.calls), precision, decoding, batch)
                able = [c for c in candidates if c.name not in refused and (decoding.beam == 1 or c.searches_beams)]
                able = [candidate for candidate in able if _runs(candidate, case, refused)]
                measured = measure(able, case, plan.rounds)
                results = results_of(case, measured, expected, plan.checkpoint.tokenizer)
                for own, result in zip(measured, results, strict=True):
                    row = _with_floor(plan, case, own, result)
                    _print(table, row)
                    yield row


def _runs(candidate: Candidate, case: Case, refused: dict[str, str]) -> bool:
    """Make one call, in which candidates compile; exclude a candidate that fails."""
    try:
        candidate.translate(case.examples.calls(case.batch)[0], case.decoding)
    except RemoteError as error:
        refused[candidate.name] = f"batch {case.batch}, beam {case.decoding.beam}: {error}"
    return candidate.name not in refused


def _part(examples: Examples, batch: int, calls: int) -> Examples:
    """Take the sentences of `calls` full calls; a set too short for one call is repeated."""
    if not calls:
        return examples
    pairs = [*examples.pairs]
    while len(pairs) < batch:
        pairs += examples.pairs
    return replace(examples, pairs=pairs[: min(calls, len(pairs) // batch) * batch])


def _with_floor(plan: Plan, case: Case, own: Measured, result: OfflineResult) -> OfflineResult:
    if not plan.ceilings:
        return result
    work = _work(plan, case, own)
    floor, launches = plan.ceilings.floor(work), plan.ceilings.floor_with_launches(work)
    shares = {"share": floor / own.median, "share_with_launches": launches / own.median}
    return replace(result, floor_seconds=floor, floor_with_launches_seconds=launches, **shares)


def _work(plan: Plan, case: Case, own: Measured) -> Work:
    """Return the work of all calls; the end of a sentence is a token too, unless all have one length."""
    lengths = [len(encoding.ids) for encoding in plan.checkpoint.tokenizer.encode_batch(case.examples.sources)]
    targets = [max(1, min(case.decoding.limit, answer.tokens + (not case.decoding.exact))) for answer in own.answers]
    total = NOTHING
    for start in range(0, len(lengths), case.batch):
        part = slice(start, start + case.batch)
        total += translation(plan.checkpoint.model.config, lengths[part], targets[part], case.decoding.beam)
    return total


def _print(table: Table, r: OfflineResult) -> None:
    show: Callable[[float | None], str | None] = lambda share: None if share is None else f"{100 * share:.1f}"  # noqa: E731
    speeds = f"{r.sentences_per_second:,.1f}", f"{r.tokens_per_second:,.0f}", r.ratio, r.of_pytorch
    paired = (r.paired.difference, f"{r.paired.p_value:.3f}") if r.paired else (None, None)
    same = (r.same.sentences, r.same.tokens) if r.same else (None, None)
    shares = show(r.share), show(r.share_with_launches)
    table.row(r.batch, r.beam, r.precision, r.candidate, *speeds, *shares, r.bleu, *paired, *same, r.settings)


if __name__ == "__main__":
    main()
