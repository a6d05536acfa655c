"""BLEU, and whether one candidate's is worse than another's: sacreBLEU's paired bootstrap (Koehn 2004)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

RESAMPLES = 1_000


@dataclass(frozen=True)
class Paired:
    """The second candidate's BLEU against the first's."""

    difference: float
    p_value: float


def bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    """Of a whole corpus, cased, 13a."""
    return round(float(BLEU().corpus_score(texts, [references]).score), 2)


def signature() -> str:
    """How the BLEU scores are made."""
    scorer = BLEU()
    scorer.corpus_score(["a"], [["a"]])
    return str(scorer.get_signature())


def compare(first: Sequence[str], second: Sequence[str], references: Sequence[str]) -> Paired:
    """Test `second` against `first`."""
    if list(first) == list(second):
        return Paired(0.0, 1.0)  # sacreBLEU would find that significant
    metrics = {"BLEU": BLEU(references=[references])}
    _, scores = PairedTest([("first", first), ("second", second)], metrics, None, "bs", RESAMPLES)()
    base, other = scores["BLEU"]
    assert isinstance(base, Result)
    assert isinstance(other, Result)
    assert other.p_value is not None
    return Paired(round(other.score - base.score, 2), round(other.p_value, 4))
