"""Draw the training pairs of the English-German model, and held-out pairs by domain.

    python mix_en_de.py DATA OUT [--exclude FILE ...]

DATA is the folder of the sentence pairs listed in SHARES; those written for it are beside this file. Written to OUT:

train.tsv.gz           the training pairs, shuffled
heldout/<domain>.tsv   held-out pairs of every domain, and Tatoeba's validation pairs in every spelling of spelling_en.py

Held-out pairs are drawn first. A training pair is dropped if its English or German text, ignoring case, punctuation and digits,
equals that of a held-out pair, a Tatoeba validation pair, a sample sentence or a line of an `--exclude` file. All seeds are
fixed: the same data give the same files.

In some training pairs, names, cities, numbers and technical terms that are equal in both languages are replaced, and some get
emoji, bullets or signs, so that the model learns to copy them; some are spelt as people type. Greetings, single words,
introductions, lists, addresses, amounts and dates come from en-de-phrases.toml.
"""

import argparse
import bz2
import gzip
import random
import re
import string
import sys
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from literals_en_de import COPIED, LITERALS
from spelling_en import SHARES as SPELLINGS
from spelling_en import respell, respelt

Pair = tuple[str, str]

HERE = Path(__file__).parent
VALID = "tatoeba.en-de.valid.tsv.gz"
SAMPLES = HERE / "en-de-samples.txt"
PHRASES = HERE / "en-de-phrases.toml"

# Copies of each file's pairs; below 1, the share of pairs that is used. Small and good files are repeated.
SHARES = {
    "tatoeba.en-de.train": 1.5,
    "ding-sentences": 4,
    "stories-asp": 5,
    "wiki-mtgeneval": 3,
    "wiki-mlqepe": 3,
    "wiki-xquad": 3,
    "dialogue-bcontrast": 2,
    "dialogue-woz": 1,
    "dialogue-cocoa": 3,
    "assistant-massive": 0.4,
    "assistant-xsid": 2,
    "games-gpl": 1,
    "games-cdda": 2,
    "web-debian": 1.5,
    "web-prose": 3,
    "docs-gnome": 3,
    "docs-moz": 3,
    "docs-libreoffice": 1.5,
    "docs-gpl": 3,
    "docs-php": 1.5,
    "docs-apphelp": 3,
    "docs-rpi": 4,
    "ui-apps": 1.2,
    "ui-web": 1.5,
    "ui-mozilla": 1.5,
    "ui-android": 2,
    "names": 1,
    "dict-ding": 0.8,
    "software-written": 7,
    "news-written": 7,
    "general-written": 7,
    "everyday-written": 12,
    "usage-written": 20,
}
NEVER_HELD_OUT = {"tatoeba.en-de.train", "names", "dict-ding"}  # Tatoeba has a validation set; the others are words
MOST_HELD_OUT, SHARE_HELD_OUT = 300, 10  # pairs of a file, and at most one in so many of them
SHORTEST_HELD_OUT = 3  # words; "Save" is everywhere
WRITTEN, WRITTEN_HELD_OUT = "-written", 24  # one in so many pairs, whichever others there are: these files grow

PHRASE_COPIES, WORD_COPIES, TEMPLATE_COPIES, LIST_COPIES, LITERAL_COPIES = 8, 5, 80, 2_000, 700
SWAPPED = 0.4  # of the pairs with something to replace
INVENTED = 0.5  # of the technical terms that replace others
LITERAL = 0.15  # of them are addresses, files or codes
BULLETS = ("- ", "* ", "• ", "– ", "1. ", "2. ", "3) ", "a) ", "> ", "# ")
PLAIN = 0.04  # of the short pairs have an English side without capital and full stop
DECORATED = 0.05  # of the pairs have emoji or signs before or behind both sides
ANY_EMOJI = 0.2  # of these have one that may be rare
COMMON_WORD = 15  # Tatoeba pairs; the dictionary's translations of words that are as common must occur there
SUPPORT = 0.08  # of the word's pairs

RANGES = {
    "age": (2, 99),
    "dayofmonth": (1, 31),
    "hour": (2, 12),
    "minutes": (10, 59),
    "number": (100, 999),
    "year": (1850, 2030),
}
EMOJI = ((0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF))  # blocks of characters
ENTITY = re.compile(r"&[a-z.]+;|\{\{|\[\[")
SPACED = re.compile(r" ['’,;] |\w [.,;:]$| \)")  # left by tokenizers: "Forrest ' s"
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"[^\W\d_]+")
TERM = re.compile(r"\w[\w.+#/-]*[A-Z][\w.+#/-]*(?<![./-])")  # technical: "OpenSSL", "IPv6", "GNU/Linux"
# Before a list's last member, in English and in German.
JOINTS = ((" and ", " und "), (", and ", " und "), (" or ", " oder "), (", ", ", "))
FIELD = re.compile(r"\{([a-z]+)\d?\}")


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description="Draws the training and test pairs of the English-German model.")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--exclude", type=Path, action="append", default=[], help="text whose lines are not to be trained on")
    options = parser.parse_args()

    pairs = {name: pairs_of(name, options.data) for name in SHARES}
    held_out = {name: hold_out(name, pairs[name]) for name in SHARES if name not in NEVER_HELD_OUT}
    valid = read_pairs(options.data / VALID)
    seen = valid + [pair for part in held_out.values() for pair in part]
    forbidden = {key(text) for pair in seen for text in pair}
    forbidden |= {key(line) for path in options.exclude for line in read_lines(path)}
    forbidden |= {key(line) for line in read_lines(SAMPLES) if len(line.split()) >= SHORTEST_HELD_OUT}
    write_held_out(options.out / "heldout", held_out)
    write_held_out(
        options.out / "heldout", {style: [respelt(p, style, random.Random(p[0])) for p in valid] for style in SPELLINGS}
    )

    usable = {name: [p for p in part if is_usable(p) and not touches(p, forbidden)] for name, part in pairs.items()}
    usable["names"] = [(english, german) for english, german in usable["names"] if german[:1].isupper()]
    usable["dict-ding"] = supported(usable["dict-ding"], usable["tatoeba.en-de.train"])
    terms = sorted({term for part in usable.values() for pair in part for term in shared_terms(pair)})
    phrases = Phrases(PHRASES, terms, usable["names"] + [entry for entry in usable["dict-ding"] if is_noun(entry)])
    rows = phrases.pairs(random.Random("phrases"))
    for name, part in usable.items():
        draw = random.Random(f"draw/{name}")
        taken = [phrases.vary(pair, draw) for pair in repeated(part, SHARES[name], draw)]
        sys.stdout.write(f"{name}: {len(pairs[name]):,} pairs, {len(part):,} usable, {len(taken):,} taken\n")
        rows += taken
    rows = [pair for pair in rows if not touches(pair, forbidden)]
    random.Random("order").shuffle(rows)
    write_lines(options.out / "train.tsv.gz", (f"{english}\t{german}" for english, german in rows))
    sys.stdout.write(f"{len(rows):,} training pairs\n")


def pairs_of(name: str, data: Path) -> list[Pair]:
    """Read the pairs of an entry of SHARES; those that were written for the model are beside this file, a side a file."""
    if name.endswith(WRITTEN):
        return list(zip(*(read_lines(HERE / f"en-de-{name}.{language}.bz2") for language in ("en", "de")), strict=True))
    return read_pairs(data / (f"{name}.tsv.gz" if ".en-de" in name else f"{name}.en-de.tsv.gz"))


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a text file, compressed if its name ends in `.gz` or `.bz2`."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a compressed file in one move, so that what exists is complete."""
    partial = path.with_name(f"{path.name}.partial")
    with gzip.open(partial, "wt", encoding="utf-8", compresslevel=4) as file:
        file.writelines(f"{line}\n" for line in lines)
    partial.replace(path)


def read_pairs(path: Path) -> list[Pair]:
    """Read the pairs of a file, skipping lines without both sides."""
    fields = (line.split("\t") for line in read_lines(path))
    return [(f[0].strip(), f[1].strip()) for f in fields if len(f) == 2 and f[0].strip() and f[1].strip()]


def key(text: str) -> str:
    """Normalise a text: equal for texts that differ only in case, punctuation or digits."""
    letters = re.sub(r"\d+", "0", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(re.findall(r"\w+", letters)) or text


def touches(pair: Pair, forbidden: set[str]) -> bool:
    """Tell whether one side of a pair is forbidden."""
    return key(pair[0]) in forbidden or key(pair[1]) in forbidden


def hold_out(name: str, pairs: Sequence[Pair]) -> list[Pair]:
    """Draw held-out pairs of a file: no single words, and no text twice."""
    long_enough = [p for p in pairs if is_clean(p) and min(len(key(text).split()) for text in p) >= SHORTEST_HELD_OUT]
    if name.endswith(WRITTEN):
        return [pair for pair in long_enough if crc32(pair[0].encode()) % WRITTEN_HELD_OUT == 0]
    random.Random(f"held out/{name}").shuffle(long_enough)
    taken: list[Pair] = []
    keys: set[str] = set()
    for pair in long_enough:
        if len(taken) == min(MOST_HELD_OUT, len(pairs) // SHARE_HELD_OUT):
            break
        if not touches(pair, keys):
            taken.append(pair)
            keys |= {key(text) for text in pair}
    return taken


def write_held_out(folder: Path, held_out: Mapping[str, Sequence[Pair]]) -> None:
    """Write one file per domain, which is the first part of a file name."""
    folder.mkdir(parents=True, exist_ok=True)
    domains: dict[str, list[Pair]] = {}
    for name, pairs in held_out.items():
        domains.setdefault(name.partition("-")[0], []).extend(pairs)
    for domain, pairs in domains.items():
        (folder / f"{domain}.tsv").write_text("".join(f"{english}\t{german}\n" for english, german in pairs), encoding="utf-8")
        sys.stdout.write(f"{domain}: {len(pairs)} pairs held out\n")


def is_clean(pair: Pair) -> bool:
    """Tell whether a pair has no markup, sides of similar length, and a translated German side."""
    english, german = pair
    words = len(english.split()), len(german.split())
    if ENTITY.search(english + german) or (english == german and words[0] > 3):
        return False
    return max(words) <= 3 * min(words) + 4


def is_usable(pair: Pair) -> bool:
    """Tell whether a pair is clean and has no spaces before punctuation."""
    return is_clean(pair) and not any(SPACED.search(side) for side in pair)


def supported(entries: Sequence[Pair], sentences: Sequence[Pair]) -> list[Pair]:
    """Drop dictionary entries with rare translations of common words.

    The entries that other files have too are not in the dictionary, often the main translation, so that what is left of
    "dog" is "Bock". Of a word that is common in `sentences` only translations that occur beside it there are kept.
    """
    heads = {english: english.removeprefix("to ").casefold() for english, _ in entries}
    single = {head for head in heads.values() if " " not in head}
    counts: Counter[str] = Counter()
    beside: dict[str, Counter[str]] = {}
    for english, german in sentences:
        german_words = {word.casefold() for word in WORD.findall(german)}
        for word in {word.casefold() for word in WORD.findall(english)} & single:
            counts[word] += 1
            beside.setdefault(word, Counter()).update(german_words)

    def is_supported(pair: Pair) -> bool:
        head = heads[pair[0]]
        if counts[head] < COMMON_WORD:
            return True
        words = [word.casefold() for word in WORD.findall(pair[1])]
        return bool(words) and min(beside[head][word] for word in words) >= SUPPORT * counts[head]

    return [pair for pair in entries if is_supported(pair)]


def shared_terms(pair: Pair) -> list[str]:
    """Return the technical terms that both sides have once."""
    english, german = (Counter(TERM.findall(text)) for text in pair)
    return [term for term, count in english.items() if len(term) > 2 and count == german[term] == 1]


def is_noun(entry: Pair) -> bool:
    """Tell whether a dictionary entry is a noun of one word."""
    return all(WORD.fullmatch(side) for side in entry) and entry[1][0].isupper()


def invented(draw: random.Random) -> str:
    """Invent a technical term, such as "XRT-3" or "RolaVem"."""
    if draw.random() < 0.5:
        letters = "".join(draw.choices(string.ascii_uppercase, k=draw.randint(2, 5)))
        return letters + draw.choice(("", "", "-", "v")) + str(draw.randint(2, 99)) if draw.random() < 0.4 else letters
    syllables = (
        draw.choice("BCDFGHKLMNPRSTVWZ") + draw.choice("aeiou") + draw.choice("lmnrstx") for _ in range(draw.randint(2, 3))
    )
    return "".join(syllables)


def repeated(pairs: Sequence[Pair], share: float, draw: random.Random) -> list[Pair]:
    """Repeat the pairs by the whole part of `share`, and add a random part for its fraction."""
    mixed = list(pairs)
    draw.shuffle(mixed)
    return mixed * int(share) + mixed[: round(len(mixed) * (share % 1))]


class Phrases:
    """Phrases, words and templates of a TOML file, with the names, technical terms and list members that fill them."""

    def __init__(self, path: Path, terms: Sequence[str], members: Sequence[Pair]) -> None:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        sections = ("phrases", "words", "templates", "lists", "literals")
        self.phrases, self.words, self.templates, self.lists, self.literals = (entries(content[name]) for name in sections)
        self.terms, self.members, self.common = terms, members, [word for word in self.words if is_noun(word)]
        fill = {kind: entries(text) for kind, text in content["fill"].items()}
        self.fill = {**fill, "first": fill["woman"] + fill["man"]}
        kinds = ("woman", "man", "city")
        self.same = {kind: [english for english, german in fill[kind] if english == german] for kind in kinds}
        # Tatoeba says Maria where the English has Mary, and Tom in every fifth sentence; a name in "s" has another genitive.
        self.kind = {name: kind for kind in kinds for name in self.same[kind] if " " not in name}
        self.swappable = {kind: [n for n in names if not n.endswith(("s", "x", "z"))] for kind, names in self.same.items()}

    def pairs(self, draw: random.Random) -> list[Pair]:
        """Generate the pairs of all phrases, words and templates."""
        rows = [self.restyle(pair, draw) for pair in self.words * WORD_COPIES]
        rows += [plain(pair) if draw.random() < 0.15 else pair for pair in self.phrases * PHRASE_COPIES]
        templates = self.templates * TEMPLATE_COPIES + self.lists * LIST_COPIES + self.literals * LITERAL_COPIES
        rows += [self.filled(pair, draw) for pair in templates]
        return rows

    def restyle(self, pair: Pair, draw: random.Random) -> Pair:
        """Vary a word: as it is, capitalised, or with a full stop."""
        english, german = pair
        style = draw.random()
        if style < 0.5:
            return pair
        english, german = english[:1].upper() + english[1:], german[:1].upper() + german[1:]
        return (english, german) if style < 0.8 else (f"{english}.", f"{german}.")

    def filled(self, template: Pair, draw: random.Random) -> Pair:
        """Fill a template with random values."""
        values: dict[str, Pair] = {}
        for match in FIELD.finditer(template[0]):
            values.setdefault(match[0], self.value(match[1], draw))
        return FIELD.sub(lambda m: values[m[0]][0], template[0]), FIELD.sub(lambda m: values[m[0]][1], template[1])

    def value(self, kind: str, draw: random.Random) -> Pair:
        """Draw the English and German values of a field."""
        if kind in self.fill:
            return draw.choice(self.fill[kind])
        if kind == "list":
            return self.list(draw)
        if kind == "term" and draw.random() < LITERAL:
            kind = draw.choice(COPIED)
        if kind in LITERALS:
            return LITERALS[kind](draw)
        if kind == "term":
            term = invented(draw) if draw.random() < INVENTED else draw.choice(self.terms)
            return term, term
        number = str(draw.randint(*RANGES[kind]))
        return number, number

    def list(self, draw: random.Random) -> Pair:
        """Draw a list of two to eight technical terms, names or nouns, none of which a translation may lose."""
        technical = draw.random() < 0.4
        members = [self.value("term", draw) if technical else self.member(draw) for _ in range(draw.randint(2, 8))]
        joints = draw.choice(JOINTS)
        english, german = (
            ", ".join(side[:-1]) + joint + side[-1] for side, joint in zip(zip(*members, strict=True), joints, strict=True)
        )
        return english, german

    def member(self, draw: random.Random) -> Pair:
        """Draw a common noun as often as any name or noun."""
        return draw.choice(draw.choice((self.common, self.members)))

    def vary(self, pair: Pair, draw: random.Random) -> Pair:
        """Sometimes replace names and numbers, sometimes make the English side casual."""
        if draw.random() < SWAPPED:
            pair = self.swap_terms(self.swap_names(swap_numbers(pair, draw), draw), draw)
        short = len(pair[0].split()) <= 10 and not NUMBER.search(pair[0])
        pair = plain(pair) if short and draw.random() < PLAIN else respell(pair, draw)
        return self.decorate(pair, draw) if draw.random() < DECORATED else pair

    def decorate(self, pair: Pair, draw: random.Random) -> Pair:
        """Put the same emoji or signs before or behind both sides."""
        signs = "".join(draw.choice(self.fill["sign"])[0] for _ in range(draw.choice((1, 1, 1, 2, 3))))
        signs = chr(draw.randint(*draw.choice(EMOJI))) if draw.random() < ANY_EMOJI else signs
        before, behind = draw.choice(
            (("", f" {signs}"), ("", f" {signs}"), ("", signs), (f"{signs} ", ""), (draw.choice(BULLETS), ""))
        )
        english, german = (f"{before}{side}{behind}" for side in pair)
        return english, german

    def swap_names(self, pair: Pair, draw: random.Random) -> Pair:
        """Replace names that occur equally often on both sides."""
        english, german = (Counter(re.findall(r"\w+", text)) for text in pair)
        swaps: dict[str, str] = {}
        for name in sorted(self.kind.keys() & english.keys()):  # a set has another order in every process
            # "Toms" is the genitive of Tom; where the English has it too, it is another name.
            genitive = german[f"{name}s"] if not english[f"{name}s"] else 0
            if english[name] == german[name] + genitive:
                swaps[name] = draw.choice(self.swappable[self.kind[name]])
                if genitive:
                    swaps[f"{name}s"] = f"{swaps[name]}s"
        if len({*swaps.values()}) < len(swaps):
            return pair
        return replaced(pair, r"\w+", swaps)

    def swap_terms(self, pair: Pair, draw: random.Random) -> Pair:
        """Replace technical terms by others."""
        swaps = {term: self.value("term", draw)[0] for term in shared_terms(pair)}
        return replaced(pair, TERM, swaps)


def entries(text: str) -> list[Pair]:
    """Parse `English = German` entries, separated by semicolons or lines; without `=`, both sides are equal."""
    parts = [part.strip() for part in re.split(r"[;\n]", text) if part.strip()]
    sides = [part.split(" = ") for part in parts]
    return [(side[0].strip(), side[-1].strip()) for side in sides]


def plain(pair: Pair) -> Pair:
    """Make the English side casual: no initial capital, no final full stop."""
    english, german = pair
    first = english.split()[0]
    lowered = english if first in {"I", "I'm", "I've", "I'll", "I'd"} or first.isupper() else english[:1].lower() + english[1:]
    return lowered.removesuffix(".") if len(lowered) > 1 else lowered, german


def swap_numbers(pair: Pair, draw: random.Random) -> Pair:
    """Replace numbers that both sides share by others with as many digits."""
    numbers = Counter(NUMBER.findall(pair[0]))
    if not numbers or numbers != Counter(NUMBER.findall(pair[1])) or re.search(r"\d:\d", pair[0]):
        return pair
    swaps = {number: other_number(number, draw) for number in numbers}
    return replaced(pair, NUMBER, swaps) if len({*swaps.values()}) == len(swaps) else pair


def other_number(number: str, draw: random.Random) -> str:
    """Draw another number. 1 is kept because its noun is singular; years become years."""
    if number.startswith("0") or number == "1" or len(number) > 9:
        return number
    if len(number) == 4 and number[:2] in {"17", "18", "19", "20"}:
        return str(draw.randint(1700, 2035))
    return str(draw.randint(max(2, 10 ** (len(number) - 1)), 10 ** len(number) - 1))


def replaced(pair: Pair, pattern: str | re.Pattern[str], swaps: Mapping[str, str]) -> Pair:
    """Both sides with what `pattern` finds replaced."""
    if not swaps:
        return pair
    english, german = (re.sub(pattern, lambda match: swaps.get(match[0], match[0]), text) for text in pair)
    return english, german


if __name__ == "__main__":
    main()
