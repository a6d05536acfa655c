"""Offline translation on a GPU, from text to text, on the same weights: Triptych, CTranslate2, PyTorch compiled, transformers.

    python tests/benchmarks/gpu_offline.py CHECKPOINT REPOSITORY --pairs FILE
        [--device cuda] [--batches 1,8,32,128,256] [--beam 1,4] [--length N] [--sentences 512] [--calls 16] [--rounds 5]
        [--candidates ctranslate2,ctranslate2-int8,triptych,pytorch,transformers] [--json FILE]

CHECKPOINT is what `triptych train` (or base.py) wrote, REPOSITORY holds its bundle with precision fp16. Every candidate has a
process of its own and takes its own times; they take turns in every round, in changing order. Speeds are medians of rounds. A
candidate that cannot be loaded, or breaks, stands at the end with the reason.

CTranslate2 computes in float16 and int8_float16; where there is no CUDA 12 for it, CUDA 13's cuBLAS is tried under the old
name.
"PyTorch compiled" is scaled dot-product attention over static caches, torch.compile, and a CUDA graph of the whole step;
"transformers" is `generate`. Both of PyTorch's run a call as one padded batch; PyTorch compiled decodes greedily only. Of each
beam and batch a few calls are measured, `--calls` of them at most.

"floor" is the share of the time that bytes and operations would need at the speeds measured in this run (roofline.py), in
percent; "launches" counts a node's time for each kernel, too. Both are counted in fp16, for all candidates alike.
"ratio" is to CTranslate2 float16, "PyTorch" to PyTorch compiled. Without --length "same" is how many sentences and tokens
(percent) are as Triptych's own in fp32 on the CPU, where the bundle has fp32.

A rehearsal on the CPU: --device cpu --tiny.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import click
import gpu_machine
import torch
from candidate import Candidate, Decoding
from contest import Case, Measured, measure
from exact import Texts, exact_texts
from examples import Examples, read_examples
from gpu_candidates import KINDS, Setup, open_candidates
from gpu_remote import RemoteCandidate, RemoteError
from report import Table, numbers, words
from result import PEER, Result, results_of
from roofline import LARGE, TINY, Ceilings, describe
from roofline import measure as measure_ceilings
from tokenizers import Tokenizer
from triptych_peer import find_model
from work import NOTHING, Work, graph_kernels, translation

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.models.transformer import TransformerConfig

CONVERTER = Path(__file__).with_name("peers.py")
USUAL = ("ctranslate2", "ctranslate2-int8", "triptych", "pytorch", "transformers")
LABEL, FP32, TORCH = "fp16", "fp32", "PyTorch"
BEAM_PLACES = 2  # that an engine has for beams, for each slot
COLUMNS = {"batch": 5, "beam": 4, "candidate": -16, "sentences/s": 11, "tokens/s": 11, "ratio": 6, "PyTorch": 7, "floor": 6}
COLUMNS |= {"launches": 8, "BLEU": 6, "same sentences": 14, "tokens": 6, "settings": -20}


@dataclass(frozen=True)
class GpuResult:
    """One row: what the CPU's table has, and how near to the floor it is."""

    result: Result
    of_pytorch: float | None  # ratio
    floor_seconds: float
    floor_with_launches_seconds: float
    share: float  # of the floor, 1.0 at best
    share_with_launches: float


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    config: TransformerConfig
    tokenizer: Tokenizer
    examples: Examples
    shapes: Sequence[tuple[Decoding, int]]
    calls: int
    rounds: int
    ceilings: Ceilings


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.option("--model", default="", help="The model's name in the repository.  [default: the first that translates]")
@click.option("--pairs", required=True, help="Sentence pairs.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--precision", default="", help="Of Triptych.  [default: fp16]")
@click.option("--batches", default="1,8,32,128,256", show_default=True, help="Sentences of a call.")
@click.option("--beam", "beams", default="1", show_default=True)
@click.option("--length", default=None, type=click.IntRange(min=1), help="Exactly so many tokens a translation.")
@click.option("--sentences", default=512, show_default=True)
@click.option("--calls", default=16, show_default=True, help="The most of a case.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--candidates", "names", default=",".join(USUAL), show_default=True, help=f"Of {', '.join(KINDS)}.")
@click.option("--slots", default=0, help="Of Triptych.  [default: as many as the largest case needs]")
@click.option("--compile/--no-compile", "compiles", default=True, help="torch.compile.")
@click.option("--tiny", is_flag=True, help="To rehearse: nothing is compiled, ceilings mean nothing.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(  # noqa: PLR0917 - click passes them by name
    checkpoint: Path,
    repository: Path,
    model: str,
    pairs: str,
    device: str,
    precision: str,
    batches: str,
    beams: str,
    length: int | None,
    sentences: int,
    calls: int,
    rounds: int,
    names: str,
    slots: int,
    compiles: bool,
    tiny: bool,
    json_file: Path | None,
) -> None:
    loaded, entry = load_checkpoint(checkpoint), find_model(repository, model)
    bundle = open_bundle(entry.folder)
    manifest = bundle.manifest_of(TranslationManifest)
    chosen = words(names, list(KINDS), "--candidates")
    sizes, limit = numbers(batches), length or manifest.generation.max_length
    decodings = [Decoding(beam, limit, length is not None) for beam in numbers(beams)]
    examples = read_examples(pairs, sentences, loaded.tokenizer, manifest.limits.max_source_tokens)
    ceilings = measure_ceilings(torch.device(device), TINY if tiny else LARGE)
    shapes = list(product(decodings, sizes))
    plan = Plan(loaded.model.config, loaded.tokenizer, examples, shapes, calls, rounds, ceilings)
    about: dict[str, object] = {"machine": gpu_machine.describe(device), "ceilings": asdict(ceilings)}
    about |= {"nodes of the graph that start a kernel": _nodes(bundle.path, manifest), "skipped, too long": examples.skipped}
    click.echo(f"{describe(ceilings)}\n{examples.name}: {len(examples.pairs)} sentences")
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        setup = Setup(
            checkpoint,
            repository,
            entry.name,
            work / "ctranslate2",
            work,
            device,
            slots or max(sizes) * max(1, max(numbers(beams)) // BEAM_PLACES),
            compiles and not tiny,
            precision,
        )
        chosen = _convert(setup, chosen, refused)
        exact = {} if length or FP32 not in manifest.precisions else _exact(setup, plan)
        candidates = []
        for candidate in open_candidates(setup, chosen, refused):
            stack.callback(candidate.close)
            candidates.append(candidate)
        results = []
        for row in _run(plan, candidates, exact, refused):
            results.append(row)
            _save(json_file, about, results, refused)
    _save(json_file, about, results, refused)
    for name, reason in refused.items():
        click.echo(f"{name}: {reason}")


def _convert(setup: Setup, names: Sequence[str], refused: dict[str, str]) -> list[str]:
    """CTranslate2's folder, made in a process of its own; the names that are left."""
    wanted = [name for name in names if KINDS[name].kind == "ctranslate2"]
    if not wanted:
        return list(names)
    command = [sys.executable, str(CONVERTER), str(setup.checkpoint), str(setup.converted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return list(names)
    reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    refused |= {KINDS[name].name: f"the weights cannot be converted: {reason}" for name in wanted}
    return [name for name in names if name not in wanted]


def _exact(setup: Setup, plan: Plan) -> Texts:
    """What Triptych answers in fp32 on the CPU."""
    decodings = list({decoding.beam: decoding for decoding, _ in plan.shapes}.values())
    cpu = replace(setup, device="cpu", precision=FP32, work=setup.work / FP32)
    texts: Texts = {}
    refused: dict[str, str] = {}
    for candidate in open_candidates(cpu, ["triptych"], refused):
        texts = exact_texts(candidate, [plan.examples], decodings)
        candidate.close()
    return texts | {(PEER, name, beam): found for (_, name, beam), found in texts.items()}


def _run(plan: Plan, candidates: Sequence[RemoteCandidate], exact: Texts, refused: dict[str, str]) -> Iterator[GpuResult]:
    table = Table(COLUMNS)
    table.head(f"{plan.examples.name}, medians of {plan.rounds} rounds")
    for decoding, batch in plan.shapes:
        case = Case(_part(plan.examples, batch, plan.calls), LABEL, decoding, batch)
        able = [c for c in candidates if c.name not in refused and (decoding.beam == 1 or c.searches_beams)]
        for candidate in able:
            _probe(candidate, case, refused)
        able = [candidate for candidate in able if candidate.name not in refused]
        measured = measure(able, case, plan.rounds)
        whole = len(case.examples.pairs)
        known = {key: [texts[index % len(texts)] for index in range(whole)] for key, texts in exact.items()}
        for own, result in zip(measured, results_of(case, measured, known, plan.tokenizer), strict=True):
            row = _row(plan, case, own, result, measured)
            _print(table, row)
            yield row


def _probe(candidate: Candidate, case: Case, refused: dict[str, str]) -> None:
    """One call: whoever compiles does it now, whoever breaks is out."""
    try:
        candidate.translate(case.examples.calls(case.batch)[0], case.decoding)
    except RemoteError as error:
        refused[candidate.name] = f"batch {case.batch}, beam {case.decoding.beam}: {error}"


def _part(examples: Examples, batch: int, calls: int) -> Examples:
    """As many sentences as fill so many calls; a set that is too short for one call is taken again and again."""
    pairs = [*examples.pairs]
    while len(pairs) < batch:
        pairs += examples.pairs
    whole = min(calls, len(pairs) // batch)
    return replace(examples, pairs=pairs[: whole * batch])


def _row(plan: Plan, case: Case, own: Measured, result: Result, measured: Sequence[Measured]) -> GpuResult:
    work = _work(plan, case, own)
    floor, launched = plan.ceilings.floor(work), plan.ceilings.floor_with_launches(work)
    torch_median = next((other.median for other in measured if other.candidate.family == TORCH), None)
    return GpuResult(
        result,
        torch_median / own.median if torch_median else None,
        floor,
        launched,
        floor / own.median,
        launched / own.median,
    )


def _work(plan: Plan, case: Case, own: Measured) -> Work:
    """Of all calls; the end of a sentence is a token too, unless all have one length."""
    lengths = [len(encoding.ids) for encoding in plan.tokenizer.encode_batch(case.examples.sources)]
    targets = [max(1, min(case.decoding.limit, answer.tokens + (not case.decoding.exact))) for answer in own.answers]
    total = NOTHING
    for start in range(0, len(lengths), case.batch):
        part = slice(start, start + case.batch)
        total += translation(plan.config, lengths[part], targets[part], case.decoding.beam)
    return total


def _nodes(path: object, manifest: TranslationManifest) -> dict[str, int]:
    assert callable(path)
    graphs = manifest.precisions.get(LABEL)
    return {} if graphs is None else {"encoder": graph_kernels(path(graphs.encoder)), "step": graph_kernels(path(graphs.step))}


def _print(table: Table, row: GpuResult) -> None:
    r = row.result
    same = (r.same.sentences, r.same.tokens) if r.same else (None, None)
    speeds = f"{r.sentences_per_second:,.1f}", f"{r.tokens_per_second:,.0f}"
    shares = f"{100 * row.share:.1f}", f"{100 * row.share_with_launches:.1f}"
    table.row(r.batch, r.beam, r.candidate, *speeds, r.ratio, row.of_pytorch, *shares, r.bleu, *same, r.settings)


def _save(file: Path | None, about: Mapping[str, object], rows: Sequence[GpuResult], refused: Mapping[str, str]) -> None:
    """After every row: whoever is stopped has what there is."""
    if file is None:
        return
    content = {**about, "refused": dict(refused), "results": [_flat(row) for row in rows]}
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flat(row: GpuResult) -> dict[str, object]:
    members = asdict(row)
    return {**members.pop("result"), **members}


if __name__ == "__main__":
    main()
