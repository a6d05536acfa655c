"""Word2Vec against gensim: analogies and similarities after the same text, epochs and options.

    pip install gensim
    python tests/benchmarks/word_vectors.py TEXT WORK [--words 2000000] [--architecture skip-gram] [--half 0] [--seeds 3]

TEXT has paragraphs, a blank line between documents (.gz and .xz too); its first words are used. Both read the same words,
lower-cased and split alike. gensim brings the questions, Google's analogies, and the pairs, WordSim-353 and SimLex-999. Prints
JSON: the share of right analogies among the most frequent 30,000 words, Spearman's correlations, and the CPU seconds of each
training, reading included. Options were chosen on `--half 0` of questions and pairs, and are reported on `--half 1`.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from gensim.models import KeyedVectors, Word2Vec
from gensim.models.word2vec import LineSentence
from gensim.test.utils import datapath

from triptych_training.checkpoints.encoder import load_word_vectors
from triptych_training.data.documents import read_documents
from triptych_training.data.words import word_tokenizer
from triptych_training.loop.recipe import WordRecipe
from triptych_training.tasks.word2vec import train_word2vec

VALID_SENTENCES = 2_000
PAIRS = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt"}


@dataclass(frozen=True)
class Options:
    """Options of both trainings."""

    epochs: int
    architecture: str
    dim: int
    min_count: int
    learning_rate: float
    seed: int


def cut(text: str, words: int, work: Path) -> None:
    """Write train.txt, valid.txt and, split into words, words.txt."""
    splitter = word_tokenizer((), lowercase=True)
    count, validated = 0, 0
    with (
        (work / "train.txt").open("w") as train,
        (work / "valid.txt").open("w") as valid,
        (work / "words.txt").open("w") as split,
    ):
        for document in read_documents((text,)):
            if validated < VALID_SENTENCES:
                valid.write("\n".join(document) + "\n\n")
                validated += len(document)
                continue
            train.write("\n".join(document) + "\n\n")
            for sentence in document:
                parts = [part for part, _ in splitter.pre_tokenizer.pre_tokenize_str(sentence.lower())]
                split.write(" ".join(parts) + "\n")
                count += len(parts)
            if count >= words:
                return


def train_gensim(options: Options, work: Path) -> KeyedVectors:
    model = Word2Vec(
        LineSentence(str(work / "words.txt")),
        vector_size=options.dim,
        window=5,
        min_count=options.min_count,
        sg=int(options.architecture == "skip-gram"),
        negative=5,
        sample=1e-4,
        epochs=options.epochs,
        workers=1,
        seed=options.seed,
    )
    return model.wv


def train_here(options: Options, work: Path) -> KeyedVectors:
    recipe = WordRecipe(
        train=(str(work / "train.txt"),),
        valid=(str(work / "valid.txt"),),
        architecture=options.architecture,
        min_count=options.min_count,
        vocabulary_size=1_000_000,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        seed=options.seed,
        validate_every=options.epochs,
        precision="fp32",
        devices="1",
    )
    run = work / f"run-{time.time_ns()}"
    checkpoint = load_word_vectors(train_word2vec(recipe, options.dim, run))
    words = sorted(checkpoint.tokenizer.get_vocab().items(), key=lambda each: each[1])[1:]  # the most frequent first
    vectors = KeyedVectors(options.dim)
    vectors.add_vectors([word for word, _ in words], checkpoint.model.bert.vectors.weight[1:].numpy())
    return vectors


def part(name: str, half: int | None, work: Path) -> str:
    """Write every second line of one of gensim's files, with all titles and comments; return the path."""
    if half is None:
        return str(datapath(name))
    lines = Path(datapath(name)).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for number, line in enumerate(lines) if line.startswith((":", "#")) or number % 2 == half]
    path = work / f"half-{half}-{name}"
    path.write_text("".join(kept), encoding="utf-8")
    return str(path)


def measure(vectors: KeyedVectors, half: int | None, work: Path) -> dict[str, Any]:
    right, sections = vectors.evaluate_word_analogies(part("questions-words.txt", half, work), restrict_vocab=30_000)
    asked = sum(len(sections[-1][name]) for name in ("correct", "incorrect"))
    pairs = {name: vectors.evaluate_word_pairs(part(file, half, work)) for name, file in PAIRS.items()}
    return {
        "words": len(vectors),
        "analogies": round(right, 4),
        "questions": asked,
        **{name: round(float(found[1][0]), 4) for name, found in pairs.items()},
    }


def trainings(options: Options, half: int | None, work: Path) -> Iterator[dict[str, Any]]:
    for name, train in (("gensim", train_gensim), ("triptych", train_here)):
        started = time.process_time()
        vectors = train(options, work)
        seconds = time.process_time() - started
        yield {"model": name, "seed": options.seed, **measure(vectors, half, work), "cpu_seconds": round(seconds, 1)}


@click.command()
@click.argument("text")
@click.argument("work", type=click.Path(path_type=Path))
@click.option("--words", default=2_000_000, help="Of the text, at least.")
@click.option("--epochs", default=5)
@click.option("--architecture", type=click.Choice(["skip-gram", "cbow"]), default="skip-gram")
@click.option("--dim", default=100)
@click.option("--min-count", default=5)
@click.option("--learning-rate", default=0.05, help="Of Triptych; gensim has its own default.")
@click.option("--seeds", default=1, help="Trainings of each.")
@click.option("--half", type=click.IntRange(0, 1), default=None, help="Ask only every second question and pair.")
def main(text: str, work: Path, words: int, half: int | None, seeds: int, **options: Any) -> None:
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    cut(text, words, work)
    for seed in range(1, seeds + 1):
        for figures in trainings(Options(seed=seed, **options), half, work):
            click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
