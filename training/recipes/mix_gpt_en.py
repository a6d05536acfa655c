"""Draw the texts that gpt-en is trained on: articles, passages of books, and short texts.

    python mix_gpt_en.py DATA OUT.txt.gz [--seed N]

DATA contains the folders `text` and `parallel`. A paragraph of a book is too short to learn how a story goes on, so that
several become one document.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from mix_bert_en import capitals, read_options, sentences, write_shuffled

from triptych_training.data.documents import read_texts

PASSAGE = 3_000  # characters of a passage of a book, at least
CAPITAL_COPIES = 60


def main() -> None:
    """Read the command line and write the file."""
    options = read_options("Draws the texts that gpt-en is trained on.")
    text = options.data / "text"
    documents = [*read_texts([str(text / "wikipedia_en.train.txt.xz")]), *passages(text / "books_en.train.txt.xz")]
    documents += [*sentences(options.data / "parallel"), *capitals() * CAPITAL_COPIES]
    write_shuffled(documents, random.Random(f"gpt-en/{options.seed}"), options.out)


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
