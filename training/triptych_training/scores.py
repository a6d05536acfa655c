"""How good translations are, in both conventions: cased sacreBLEU, and the literature's on small sets."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU

from triptych_training.literature import LANGUAGES, prepare


@dataclass(frozen=True)
class Score:
    """BLEU of a corpus, and what kind of BLEU it is."""

    bleu: float
    signature: str


def cased_score(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU's own, of translations and one reference each."""
    scorer = BLEU()
    value = scorer.corpus_score(list(outputs), [list(references)]).score
    return Score(value, str(scorer.get_signature()))


def literature_score(outputs: Sequence[str], references: Sequence[str], language: str) -> Score | None:
    """The literature's, of text in this language (a code such as de); None where there are no rules for it."""
    language = language.partition("-")[0].lower()
    if language not in LANGUAGES:
        return None
    scorer = BLEU(tokenize="none", force=True)
    value = scorer.corpus_score(prepare(outputs, language), [prepare(references, language)]).score
    return Score(value, f"{scorer.get_signature()}|text:lower-cased, normalised, tokenised ({language})")
