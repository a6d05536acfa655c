"""Draw the English sentences that en-de's teacher translates for its student: of articles, books and sentence pairs.

    python texts_en.py DATA MIX OUT.txt.gz

DATA contains the folders `text` and `parallel`; MIX is the output of mix_en_de.py, whose held-out sentences are left out. Words
and short phrases are not translated again: what people wrote is better.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mix_bert_en import SENTENCE_END
from mix_en_de import SAMPLES, VALID, key, read_lines, read_pairs, write_lines

from triptych_training.data.documents import read_texts

DRAWN = {"wikipedia_en": 450_000, "books_en": 200_000}  # sentences of each collection
OTHERS = ("tatoeba.en-fr.train", "docs-gnome.en-fr", "docs-moz.en-fr")  # their English sides
SHORTEST, LONGEST = 3, 45  # words
SENTENCE = re.compile(r"[\"“‘'(]?[A-Z0-9][^=|{}<>\[\]_*#~^\\]*[.!?][\"”’')]?")


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description="Draws the sentences that en-de's teacher translates.")
    parser.add_argument("data", type=Path)
    parser.add_argument("mix", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    held_out = [*options.mix.glob("heldout/*.tsv"), options.data / "parallel" / VALID]
    forbidden = {key(english) for path in held_out for english, _ in read_pairs(path)}
    forbidden |= {key(line) for line in read_lines(SAMPLES) if len(line.split()) >= SHORTEST}

    texts = {english for english, _ in read_pairs(options.mix / "train.tsv.gz") if len(english.split()) >= SHORTEST}
    texts |= {english for name in OTHERS for english, _ in read_pairs(options.data / "parallel" / f"{name}.tsv.gz")}
    for name, count in DRAWN.items():
        found = sorted(set(sentences(options.data / "text" / f"{name}.train.txt.xz")))
        texts |= set(random.Random(name).sample(found, min(count, len(found))))
    kept = [text for text in sorted(texts) if key(text) not in forbidden]
    write_lines(options.out, kept)
    sys.stdout.write(f"{len(kept):,} sentences\n")


def sentences(path: Path) -> Iterator[str]:
    """Yield the whole, plain sentences of articles and books."""
    for text in read_texts([str(path)]):
        for paragraph in text.split("\n"):
            for sentence in SENTENCE_END.split(paragraph):
                if SHORTEST <= len(sentence.split()) <= LONGEST and SENTENCE.fullmatch(sentence):
                    yield sentence


if __name__ == "__main__":
    main()
