"""Offline translation on the same trained weights, from text to text: Triptych against CTranslate2, PyTorch and a plain graph.

    python tests/benchmarks/offline.py CHECKPOINT REPOSITORY --pairs FILE [--pairs FILE ...]
        [--beam 1,4] [--batches 1,8,32,128] [--precisions fp32,int8] [--cpus 1] [--sentences 512] [--rounds 5]
        [--candidates ctranslate2,triptych,grpc,pytorch,concat] [--length N] [--json FILE]

CHECKPOINT is what `triptych train` (or base.py) wrote, REPOSITORY holds its bundle. FILE has source<TAB>target lines, or is
SOURCE::TARGET, two files; .gz and .xz too. A part of a file is drawn with a fixed seed; sources that the model cannot take are
skipped and counted.

The whole run is kept on `--cpus` CPUs. Candidates take turns in every round, in changing order, so that a noisy machine
disturbs all alike; speeds are medians of rounds, ratios are of medians, to CTranslate2 of the same precision, beam and batch.
CTranslate2 gets the back end, the split of CPUs into workers and threads, and the batch size in each worker, that prove fastest
in a short calibration; all others run as they come. "Triptych gRPC" is a server process on the same CPUs, one request a call.
PyTorch and the plain graph ("ONNX concat": the past joined in the graph, logits out, arg-max outside) decode greedily only,
PyTorch in fp32.

"same" is how many sentences and tokens (percent) are as in fp32: Triptych's against Triptych's own fp32 if the bundle has it,
all others' against CTranslate2's fp32. In fp32 everything is held against CTranslate2. "difference" is Triptych's BLEU less
CTranslate2's, "p" its p-value in sacreBLEU's paired bootstrap. With --length every translation has exactly so many tokens, for
weights that are not trained (base.py), and quality is not measured. Needs `pip install ctranslate2`.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby, product
from pathlib import Path

import click
import cores
import isa
import machine
from candidate import Decoding
from candidates import EXACT, NAMES, Setup, open_candidates
from contest import Case, measure
from exact import Texts, exact_texts
from examples import Examples, read_examples
from report import Table, numbers, words, write_json
from result import Result, results_of
from triptych_peer import find_model

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_training.checkpoints.translation import load_checkpoint

FP32 = "fp32"
CALIBRATION_SENTENCES = 64
COLUMNS = {"batch": 5, "beam": 4, "precision": -9, "candidate": -13, "sentences/s": 11, "tokens/s": 9, "ratio": 5, "BLEU": 5}
COLUMNS |= {"difference": 10, "p": 6, "same sentences": 14, "tokens": 6, "settings": -20}


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--model", default="", help="The model's name in the repository.  [default: the first that translates]")
@click.option("--pairs", multiple=True, required=True, help="Sentence pairs; repeatable.")
@click.option("--sentences", default=512, show_default=True, help="Of each file.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--cpus", default=1, show_default=True)
@click.option("--batches", default="1,8,32,128", show_default=True, help="Sentences of a call.")
@click.option("--beam", "beams", multiple=True, default=["1"], show_default=True, help="Repeatable, or with commas.")
@click.option("--precisions", default="", help="[default: the bundle's]")
@click.option("--candidates", "names", default=",".join(NAMES), show_default=True)
@click.option("--length", default=None, type=click.IntRange(min=1), help="Exactly so many tokens a translation.")
@click.option("--slots", default=None, type=click.IntRange(min=1), help="Of a worker of Triptych.  [default: its own]")
@click.option("--serve-options", default="", help="More of `triptych serve`.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(  # noqa: PLR0917 - click passes them by name
    checkpoint: Path,
    repository: Path,
    model: str,
    pairs: Sequence[str],
    sentences: int,
    rounds: int,
    cpus: int,
    batches: str,
    beams: Sequence[str],
    precisions: str,
    names: str,
    length: int | None,
    slots: int | None,
    serve_options: str,
    json_file: Path | None,
) -> None:
    cores.pin(cores.choose(cpus)[0])
    loaded, entry = load_checkpoint(checkpoint), find_model(repository, model)
    manifest = open_bundle(entry.folder).manifest_of(TranslationManifest)
    chosen = words(names, NAMES, "--candidates")
    wanted = words(precisions, sorted(manifest.precisions), "--precisions") or sorted(manifest.precisions)
    sets = [read_examples(path, sentences, loaded.tokenizer, manifest.limits.max_source_tokens) for path in pairs]
    limit = length or manifest.generation.max_length
    decodings = [Decoding(beam, limit, length is not None) for text in beams for beam in numbers(text)]
    shapes = list(product(decodings, numbers(batches)))
    with tempfile.TemporaryDirectory() as work:
        converted = Path(work) / "ctranslate2"
        environment = isa.prepare(checkpoint, converted, wanted, sets[0].sources[:CALIBRATION_SENTENCES], limit)
        about = _about(sets, environment)
        setup = Setup(loaded, repository, entry, converted, Path(work), cpus, slots, serve_options.split())
        exact = {} if length else _exact(setup, FP32 in manifest.precisions, sets, decodings)
        plan = [[Case(examples, precision, *shape) for examples in sets for shape in shapes] for precision in wanted]
        results = [result for cases in plan for result in _run(setup, chosen, cases, rounds, exact)]
    if json_file:
        write_json(json_file, about, results)


def _about(sets: Sequence[Examples], environment: str) -> dict[str, object]:
    """What else a reader must know; printed too."""
    about: dict[str, object] = {
        "machine": machine.describe(),
        "CTranslate2 back end": environment or "its own choice",
        "sentences": {examples.name: len(examples.pairs) for examples in sets},
        "skipped, too long": {examples.name: examples.skipped for examples in sets},
    }
    click.echo("\n".join(f"{name}: {value}" for name, value in about.items()))
    return about


def _exact(setup: Setup, has_fp32: bool, sets: Sequence[Examples], decodings: Sequence[Decoding]) -> Texts:
    """What CTranslate2, and Triptych where the bundle can, answer in fp32."""
    texts: Texts = {}
    for name in EXACT if has_fp32 else EXACT[:1]:
        with ExitStack() as stack:
            [candidate] = open_candidates(setup, FP32, [name])
            stack.callback(candidate.close)
            texts |= exact_texts(candidate, sets, decodings)
    return texts


def _run(setup: Setup, names: Sequence[str], cases: Sequence[Case], rounds: int, exact: Texts) -> Iterator[Result]:
    """The cases of one precision; rows are printed as they come."""
    table = Table(COLUMNS)
    with ExitStack() as stack:
        candidates = open_candidates(setup, cases[0].precision, names)
        for candidate in candidates:
            stack.callback(candidate.close)
        for examples, group in groupby(cases, key=lambda case: case.examples.name):
            table.head(f"{examples}, {cases[0].precision}, {setup.cpus} CPUs")
            for case in group:
                able = [candidate for candidate in candidates if case.decoding.beam == 1 or candidate.searches_beams]
                for result in results_of(case, measure(able, case, rounds), exact, setup.checkpoint.tokenizer):
                    _print(table, result)
                    yield result


def _print(table: Table, r: Result) -> None:
    speed, tokens = f"{r.sentences_per_second:,.1f}", f"{r.tokens_per_second:,.0f}"
    same = (r.same.sentences, r.same.tokens) if r.same else (None, None)
    paired = (r.paired.difference, f"{r.paired.p_value:.3f}") if r.paired else (None, None)
    table.row(r.batch, r.beam, r.precision, r.candidate, speed, tokens, r.ratio, r.bleu, *paired, *same, r.settings)


if __name__ == "__main__":
    main()
