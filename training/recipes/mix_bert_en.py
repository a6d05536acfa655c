"""Draw the mixed texts of bert-en's training: articles, books, capitals, and sentences on their own.

    python mix_bert_en.py DATA OUT.txt.gz [--seed N]

DATA contains the folders `text` and `parallel`. Articles alone teach facts and long contexts; but people try a model on one
short sentence, of a kind that an encyclopedia does not have. Sentences of the card are left out.
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from mix_en_de import key, read_lines, read_pairs, write_lines

from triptych_training.data.documents import read_texts

ARTICLES, PARAGRAPHS, BOOKS = 0.2, 0.25, 0.2  # shares: whole articles, single sentences of the others, paragraphs of books
SENTENCES = (
    "tatoeba.en-de.train",
    "ding-sentences.en-de",
    "stories-asp.en-de",
    "dialogue-bcontrast.en-de",
    "dialogue-cocoa.en-de",
)
COPIES = 2  # of each of these sentences
CAPITALS = """
    Argentina Buenos Aires, Australia Canberra, Austria Vienna, Belgium Brussels, Brazil Brasilia, Bulgaria Sofia,
    Canada Ottawa, Chile Santiago, China Beijing, Croatia Zagreb, Cuba Havana, Denmark Copenhagen, Egypt Cairo,
    England London, Ethiopia Addis Ababa, Finland Helsinki, France Paris, Germany Berlin, Ghana Accra, Greece Athens,
    Hungary Budapest, Iceland Reykjavik, Indonesia Jakarta, Ireland Dublin, Italy Rome, Japan Tokyo, Kenya Nairobi,
    Lebanon Beirut, Libya Tripoli, Malaysia Kuala Lumpur, Morocco Rabat, Nepal Kathmandu, Netherlands Amsterdam,
    Nigeria Abuja, Norway Oslo, Pakistan Islamabad, Peru Lima, Poland Warsaw, Portugal Lisbon, Romania Bucharest,
    Russia Moscow, Scotland Edinburgh, Serbia Belgrade, Spain Madrid, Sweden Stockholm, Switzerland Bern, Thailand
    Bangkok, Turkey Ankara, Vietnam Hanoi, Wales Cardiff
"""
CAPITAL_SENTENCES = (
    "{city} is the capital of {country}.",
    "The capital of {country} is {city}.",
    "{city} is the capital and the best known city of {country}.",
    "We flew to {city}, the capital of {country}.",
    "What is the capital of {country}? It is {city}.",
    "The government of {country} is in the capital, {city}.",
)
CAPITAL_COPIES = 300
CARD = Path(__file__).with_name("bert-en.md")
SENTENCE_END = re.compile(r"(?<=[a-z\d)][.!?]) (?=[A-Z])")
SHORTEST, LONGEST = 4, 40  # words of a sentence on its own


def main() -> None:
    """Read the command line and write the file."""
    options = read_options("Draws the mixed texts of bert-en's training.")
    draw = random.Random(f"bert-en/{options.seed}")
    documents = [*articles(options.data / "text", draw), *books(options.data / "text", draw)]
    documents += [*sentences(options.data / "parallel") * COPIES, *capitals() * CAPITAL_COPIES]
    rows = [line.split("|")[1] for line in read_lines(CARD) if line.startswith("|") and "[MASK]" in line]
    forbidden = [re.compile(key(row).replace("mask", r"\w+")) for row in rows]
    documents = [text for text in documents if len(text) > 200 or not any(each.fullmatch(key(text)) for each in forbidden)]
    write_shuffled(documents, draw, options.out)


def read_options(description: str) -> argparse.Namespace:
    """Read the command line: `data`, `out` and `seed`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def write_shuffled(documents: list[str], draw: random.Random, path: Path) -> None:
    """Write documents in a random order, with a blank line between them."""
    draw.shuffle(documents)
    write_lines(path, (f"{text}\n" for text in documents))


def sentences(folder: Path) -> list[str]:
    """Return the English sentences of the pairs, each once."""
    return sorted({english for name in SENTENCES for english, _ in read_pairs(folder / f"{name}.tsv.gz")})


def articles(folder: Path, draw: random.Random) -> Iterator[str]:
    """Yield a share of the articles, and sentences of the others."""
    for article in read_texts([str(folder / "wikipedia_en.train.txt.xz")]):
        if draw.random() < ARTICLES:
            yield article
            continue
        for paragraph in article.splitlines()[1:]:
            parts = SENTENCE_END.split(paragraph)
            if draw.random() < PARAGRAPHS and SHORTEST <= len((sentence := draw.choice(parts)).split()) <= LONGEST:
                yield sentence


def books(folder: Path, draw: random.Random) -> Iterator[str]:
    """Yield a share of the paragraphs of books, each on one line."""
    for paragraph in read_texts([str(folder / "books_en.train.txt.xz")]):
        if draw.random() < BOOKS:
            yield " ".join(paragraph.split())


def capitals() -> list[str]:
    """Return sentences about the capitals of countries."""
    pairs = [entry.split(maxsplit=1) for entry in CAPITALS.split(",")]
    return [sentence.format(country=country, city=city) for country, city in pairs for sentence in CAPITAL_SENTENCES]


if __name__ == "__main__":
    main()
