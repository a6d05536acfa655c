"""Draw the texts that gpt-en is trained on: articles, passages of books, and short texts.

    python mix_gpt_en.py DATA OUT.txt.gz [--seed N]

DATA contains the folders `text` and `parallel`. A paragraph of a book is too short to learn how a story goes on, so that
several become one document.
"""

import argparse
import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from mix_bert_en import SENTENCES, capitals
from mix_en_de import read_pairs

from triptych_training.data.documents import read_texts

PASSAGE = 3_000  # characters of a passage of a book, at least
CAPITAL_COPIES = 60


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description="Draws the texts that gpt-en is trained on.")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    text, parallel = options.data / "text", options.data / "parallel"
    documents = [*read_texts([str(text / "wikipedia_en.train.txt.xz")]), *passages(text / "books_en.train.txt.xz")]
    documents += sorted({english for name in SENTENCES for english, _ in read_pairs(parallel / f"{name}.tsv.gz")})
    documents += capitals() * CAPITAL_COPIES
    random.Random(f"gpt-en/{options.seed}").shuffle(documents)
    with gzip.open(options.out, "wt", encoding="utf-8", compresslevel=4) as file:
        file.writelines(f"{document}\n\n" for document in documents)


def passages(path: Path) -> Iterator[str]:
    """Yield consecutive paragraphs as one document, each on one line."""
    passage: list[str] = []
    for paragraph in read_texts([str(path)]):
        passage.append(" ".join(paragraph.split()))
        if sum(map(len, passage)) >= PASSAGE:
            yield "\n".join(passage)
            passage = []
    yield "\n".join(passage)


if __name__ == "__main__":
    main()
