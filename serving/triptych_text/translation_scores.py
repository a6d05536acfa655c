"""BLEU and chrF of translations, by the rules of their language."""

from collections.abc import Sequence
from dataclasses import dataclass

from triptych_text.languages import UNDETERMINED, primary_language
from triptych_text.sentences import is_unspaced

# sacreBLEU's tokenizers for languages that 13a, the default, does not divide into words.
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", **dict.fromkeys(("th", "lo", "my", "km"), "char")}


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a corpus, 0 to 100; the signatures say how they were computed."""

    bleu: float
    chrf: float
    signature: str
    chrf_signature: str
    sentences: int


def score_translations(
    outputs: Sequence[str], references: Sequence[str], language: str, lowercase: bool = False
) -> TranslationScores:
    """Compute sacreBLEU and chrF with one reference per translation.

    Args:
        outputs: translations; a missing one is an empty text, not left out.
        references: one for each.
        language: of the translations; empty: unknown, judged by the script of the references.
        lowercase: ignore case.

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
    """
    from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415 - a rare extra
    from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415

    tokenizer = TOKENIZERS.get(primary_language(language), "13a")
    if primary_language(language) == UNDETERMINED:
        letters = [sign for text in references for sign in text if sign.isalpha()]
        tokenizer = "char" if sum(map(is_unspaced, letters)) > len(letters) / 2 else "13a"
    try:
        bleu = BLEU(tokenize=tokenizer, lowercase=lowercase)
    except (ImportError, RuntimeError):  # MeCab is not installed
        bleu = BLEU(tokenize="char", lowercase=lowercase)
    chrf = CHRF(lowercase=lowercase)
    words, signs = (metric.corpus_score(list(outputs), [list(references)]).score for metric in (bleu, chrf))
    return TranslationScores(words, signs, str(bleu.get_signature()), str(chrf.get_signature()), len(references))
