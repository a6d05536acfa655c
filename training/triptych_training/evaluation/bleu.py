"""BLEU as papers on small data sets report it: lower-cased, on Moses tokens. The usual one is in triptych_text.

`prepare` follows the Moses scripts `normalize-punctuation.perl` and `tokenizer.perl` for English, German and French.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from sacrebleu.metrics.bleu import BLEU


@dataclass(frozen=True)
class Score:
    """BLEU of a corpus, with a signature that says how it was computed."""

    bleu: float
    signature: str


def literature_score(outputs: Sequence[str], references: Sequence[str], language: str) -> Score | None:
    """Compute BLEU on lower-cased Moses tokens; None if there are no rules for the language (a code such as de)."""
    language = language.partition("-")[0].lower()
    if language not in LANGUAGES:
        return None
    scorer = BLEU(tokenize="none", force=True)
    value = scorer.corpus_score(prepare(outputs, language), [prepare(references, language)]).score
    return Score(value, f"{scorer.get_signature()}|text:lower-cased, normalised, tokenised ({language})")


# Lower-case abbreviations that keep their full stop; those of NUMERIC only before a number.
ABBREVIATIONS = {
    "en": "v vs i.e rev e.g",
    "fr": (
        "b c d e f g h i j k l m n o p q r s t u v w x y z ann apr art auj av lib boul ca c.-à-d cf ch.-l chap contr dir éd "
        "e.g env al etc ex fasc fém fig fr hab ibid id i.e inf loc.cit masc ms n/réf p.c.c pl pp p.ex p.j sec sect sing sq sqq "
        "suiv sup suppl tél vb vol vs"
    ),
    "de": (
        "a b c d e f g h i j k l m n o p q r s t u v w x y z ii iii iv vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix xx "
        "bzgl bzw ca dergl dgl d.h etc evtl ff ggf jun pp sen sog sogen spp u.a usf usw vgl vs zzt"
    ),
}
NUMERIC = {"en": "pp", "fr": "", "de": ""}
ORDINAL = re.compile(r"\d{1,2}")  # German "16." is an ordinal, even at the end of a sentence
LANGUAGES = tuple(ABBREVIATIONS)

Rule = tuple[re.Pattern[str], str]


def _rules(*rules: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


NORMAL = _rules(
    (r"\r", ""),
    (r"\(", " ("),
    (r"\)", ") "),
    (r" +", " "),
    (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("),
    (r" \)", ")"),
    (r"(\d) %", r"\1%"),
    (r" :", ":"),
    (r" ;", ";"),
    ("`", "'"),
    ("''", ' " '),
    ("[„“”]", '"'),
    ("–", "-"),
    ("—", " - "),
    (r" +", " "),
    ("´", "'"),
    ("([a-zA-Z])[‘’]([a-zA-Z])", r"\1'\2"),
    ("[‘‚’]", "'"),
    ("''", '"'),
    ("´´", '"'),
    ("…", "..."),
    ("\u00a0« ", ' "'),
    ("«\u00a0", '"'),
    ("«", '"'),
    ("\u00a0» ", '" '),
    ("\u00a0»", '"'),
    ("»", '"'),
    ("\u00a0%", "%"),
    ("nº\u00a0", "nº "),
    ("\u00a0:", ":"),
    ("\u00a0ºC", " ºC"),
    ("\u00a0cm", " cm"),
    ("\u00a0\\?", "?"),
    ("\u00a0!", "!"),
    ("\u00a0;", ";"),
    (",\u00a0", ", "),
    (r" +", " "),
)
# English puts a comma or full stop before the closing quotation mark, other languages after it.
QUOTES = {"en": _rules((r'"([,.]+)', r'\1"'))}
QUOTES_ELSEWHERE = _rules((',"', '",'), (r'(\.+)"(\s*[^<])', r'"\1\2'))
THOUSANDS = {"en": _rules(("(\\d)\u00a0(\\d)", r"\1.\2"))}
THOUSANDS_ELSEWHERE = _rules(("(\\d)\u00a0(\\d)", r"\1,\2"))


def normalise(text: str, language: str) -> str:
    """Normalise the spelling of punctuation."""
    own = (*QUOTES.get(language, QUOTES_ELSEWHERE), *THOUSANDS.get(language, THOUSANDS_ELSEWHERE))
    for pattern, replacement in (*NORMAL, *own):
        text = pattern.sub(replacement, text)
    return text


def tokenise(text: str, language: str) -> str:
    """Separate the words and punctuation marks of lower-case text by spaces."""
    text = f" {' '.join(CONTROL.sub('', text).split())} "
    text = re.sub(r"([^\w\s.'`,-]|_)", r" \1 ", text)
    text = re.sub(r"\.{2,}", lambda dots: f" {HELD * len(dots[0])} ", text)
    text = re.sub(r"(\D),", r"\1 , ", text)
    text = re.sub(r",(\D)", r" , \1", text)
    text = re.sub(r"(\d),$", r"\1 ,", text)
    for pattern, replacement in APOSTROPHES.get(language, APOSTROPHES_ELSEWHERE):
        text = pattern.sub(replacement, text)
    words = text.split()
    return " ".join(map(_full_stop, words, [*words[1:], ""], repeat(language))).replace(HELD, ".")


def _full_stop(word: str, following: str, language: str) -> str:
    """Separate the full stop from a word if it ends a sentence; `following` is the next word."""
    if not word.endswith(".") or len(word) < 2:
        return word
    stem = word[:-1]
    if "." in stem and re.search(r"[^\W\d_]", stem):
        return word
    if stem in ABBREVIATIONS[language].split() or following[:1].islower():
        return word
    if language == "de" and ORDINAL.fullmatch(stem):
        return word
    if stem in NUMERIC[language].split() and following[:1].isdigit():
        return word
    return f"{stem} ."


CONTROL = re.compile("[\x00-\x1f]")
HELD = "\ue000"  # stands for the full stops of an ellipsis while single ones are processed
LETTER, OTHER = r"[^\W\d_]", r"(?:[\W\d_])"
APOSTROPHES = {
    "en": _rules(
        (rf"({OTHER})'({OTHER})", r"\1 ' \2"),
        (rf"([^\w])'({LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({OTHER})", r"\1 ' \2"),
        (rf"({LETTER})'({LETTER})", r"\1 '\2"),
        (r"(\d)'(s)", r"\1 '\2"),
    ),
    "fr": _rules(
        (rf"({OTHER})'({OTHER})", r"\1 ' \2"),
        (rf"({OTHER})'({LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({OTHER})", r"\1 ' \2"),
        (rf"({LETTER})'({LETTER})", r"\1' \2"),
    ),
}
APOSTROPHES_ELSEWHERE = _rules((r"'", " ' "))


def prepare(texts: Sequence[str], language: str) -> list[str]:
    """Lower-case, normalise and tokenise texts in one of LANGUAGES."""
    return [tokenise(normalise(text.lower(), language), language) for text in texts]
