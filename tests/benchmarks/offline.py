"""Offline throughput of greedy translation, tokenization included: Triptych in process against CTranslate2 on the same weights.

    python tests/benchmarks/offline.py CHECKPOINT REPOSITORY PAIRS [--sentences 512] [--rounds 5] [--cpus 1] [--json FILE]

CHECKPOINT is what `triptych train` wrote, REPOSITORY holds its bundle, PAIRS is a file of source<TAB>target lines. Candidates
take turns in every round, so that a noisy machine disturbs all of them alike; the table shows medians, and ratios of medians.
Needs `pip install ctranslate2`.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import sacrebleu
from peers import convert, open_peer

from triptych_serving.bundle import open_bundle
from triptych_serving.engine import EngineOptions
from triptych_serving.repository import newest_versions
from triptych_serving.translator import Translator, TranslatorOptions
from triptych_training.checkpoint import Checkpoint, load_checkpoint
from triptych_training.corpus import read_pairs

Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    batch: int
    precision: str
    candidate: str
    sentences_per_second: float
    ratio: float  # to CTranslate2 at the same batch size and precision
    bleu: float


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("repository", type=click.Path(path_type=Path))
@click.argument("pairs")
@click.option("--sentences", default=512, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--cpus", default=1, show_default=True)
@click.option("--batches", default="1,8,32,128", show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(
    checkpoint: Path, repository: Path, pairs: str, sentences: int, rounds: int, cpus: int, batches: str, json_file: Path | None
) -> None:
    examples = read_pairs([pairs])
    examples = [examples[i * len(examples) // sentences] for i in range(min(sentences, len(examples)))]
    loaded = load_checkpoint(checkpoint)
    bundle = open_bundle(newest_versions(repository)[0].folder)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as work:
        peer = convert(loaded, Path(work) / "peer")
        for precision in bundle.manifest.precisions:
            translator = Translator("bench", 1, bundle, TranslatorOptions(precision, EngineOptions(cpus, 128 // cpus)))
            candidates = {
                "CTranslate2": _peer(loaded, peer, precision, cpus),
                "Triptych": lambda texts, translator=translator: [o.text for o in translator.translate(texts)],
            }
            for batch in map(int, batches.split(",")):
                results += _measure(candidates, examples, batch, precision, rounds)
            translator.close()
    _print(results)
    if json_file:
        json_file.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n", encoding="utf-8")


def _peer(checkpoint: Checkpoint, folder: Path, precision: str, cpus: int) -> Translate:
    translator = open_peer(folder, precision, workers=cpus, threads=1)
    tokenizer = checkpoint.tokenizer
    limit = checkpoint.model.config.max_positions - 1

    def translate(texts: Sequence[str]) -> list[str]:
        sources = [encoding.tokens for encoding in tokenizer.encode_batch(list(texts))]
        share = -(-len(sources) // cpus)
        results = translator.translate_batch(sources, beam_size=1, max_decoding_length=limit, max_batch_size=share)
        ids = [[tokenizer.token_to_id(piece) for piece in result.hypotheses[0]] for result in results]
        return tokenizer.decode_batch(ids)

    return translate


def _measure(
    candidates: dict[str, Translate], examples: Sequence[tuple[str, str]], batch: int, precision: str, rounds: int
) -> list[Result]:
    texts = [source for source, _ in examples]
    calls = [texts[start : start + batch] for start in range(0, len(texts), batch)]
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    outputs: dict[str, list[str]] = {}
    for _ in range(rounds + 1):  # the first is a warm-up
        for name, translate in candidates.items():
            started = time.perf_counter()
            outputs[name] = [text for call in calls for text in translate(call)]
            seconds[name].append(time.perf_counter() - started)
    speed = {name: len(texts) / statistics.median(times[1:]) for name, times in seconds.items()}
    references = [[target for _, target in examples]]
    return [
        Result(
            batch,
            precision,
            name,
            round(speed[name], 1),
            round(speed[name] / speed["CTranslate2"], 2),
            round(sacrebleu.corpus_bleu(outputs[name], references).score, 2),
        )
        for name in candidates
    ]


def _print(results: Sequence[Result]) -> None:
    row = "{:>5}  {:9}  {:12}  {:>11}  {:>5}  {:>5}".format
    click.echo(row("batch", "precision", "", "sentences/s", "ratio", "BLEU"))
    for r in results:
        speed, ratio, bleu = f"{r.sentences_per_second:,.1f}", f"{r.ratio:.2f}", f"{r.bleu:.2f}"
        click.echo(row(r.batch, r.precision, r.candidate, speed, ratio, bleu))


if __name__ == "__main__":
    main()
