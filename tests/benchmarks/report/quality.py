"""Rows of the offline table: speed, BLEU with a paired bootstrap test (Koehn 2004), agreement with fp32."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from candidates.contest import Case, Measured, Texts
from candidates.remote import OWN, PEER, TORCH
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result
from tokenizers import Tokenizer

RESAMPLES = 1_000


@dataclass(frozen=True)
class Agreement:
    """Agreement of two candidates, in percent."""

    sentences: float  # identical ones
    tokens: float  # equal at the same position, of the longer translation


@dataclass(frozen=True)
class Paired:
    """BLEU of Triptych compared with CTranslate2's."""

    difference: float
    p_value: float


@dataclass(frozen=True)
class OfflineResult:
    """One row."""

    pairs: str
    batch: int
    beam: int
    precision: str
    candidate: str
    settings: str
    seconds: tuple[float, ...]  # of each round
    sentences_per_second: float
    tokens_per_second: float
    ratio: float | None  # to CTranslate2 of the same precision
    of_pytorch: float | None  # ratio
    bleu: float | None
    same: Agreement | None
    paired: Paired | None
    floor_seconds: float | None = None  # on a GPU
    floor_with_launches_seconds: float | None = None
    share: float | None = None  # of the floor, 1.0 at best
    share_with_launches: float | None = None


def results_of(case: Case, measured: Sequence[Measured], expected: Texts, tokenizer: Tokenizer) -> Iterator[OfflineResult]:
    """Yield a row per candidate, without quality if all translations have one length."""
    peer, torch = (next((m for m in measured if m.candidate.family == family), None) for family in (PEER, TORCH))
    for own in measured:
        quality = not case.decoding.exact
        yield OfflineResult(
            pairs=case.examples.name,
            batch=case.batch,
            beam=case.decoding.beam,
            precision=case.precision,
            candidate=own.candidate.name,
            settings=own.candidate.settings,
            seconds=own.seconds,
            sentences_per_second=len(own.answers) / own.median,
            tokens_per_second=sum(answer.tokens for answer in own.answers) / own.median,
            ratio=peer.median / own.median if peer else None,
            of_pytorch=torch.median / own.median if torch else None,
            bleu=_bleu(own.texts, case.examples.references) if quality else None,
            same=_same(case, own, expected, tokenizer) if quality else None,
            paired=_paired(peer.texts, own.texts, case.examples.references)
            if quality and peer and own.candidate.family == OWN
            else None,
        )


def signature() -> str:
    """Return sacreBLEU's signature of the BLEU scores."""
    scorer = BLEU()
    scorer.corpus_score(["a"], [["a"]])
    return str(scorer.get_signature())


def compare(tokenizer: Tokenizer, expected: Sequence[str], texts: Sequence[str]) -> Agreement:
    """Compare translations token by token; texts are tokenized again, since gRPC returns no tokens."""
    lefts, rights = ([encoding.ids for encoding in tokenizer.encode_batch(list(side))] for side in (expected, texts))
    pairs = list(zip(lefts, rights, strict=True))
    positions = sum(max(len(left), len(right)) for left, right in pairs)
    hits = sum(a == b for left, right in pairs for a, b in zip(left, right, strict=False))
    equal = sum(left == right for left, right in pairs)
    return Agreement(round(100 * equal / max(1, len(pairs)), 2), round(100 * hits / max(1, positions), 2))


def _bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    return round(float(BLEU().corpus_score(texts, [references]).score), 2)


def _same(case: Case, own: Measured, expected: Texts, tokenizer: Tokenizer) -> Agreement | None:
    """Compare with fp32: Triptych's own for Triptych in another precision, else CTranslate2's or, without it, Triptych's."""
    families = [PEER, OWN] if case.precision == "fp32" else [own.candidate.family, PEER, OWN]
    keys = [(family, case.examples.name, case.decoding.beam) for family in families]
    texts = next((expected[key] for key in keys if key in expected), None)
    if texts is None:
        return None
    return compare(tokenizer, [texts[index % len(texts)] for index in range(len(own.texts))], own.texts)


def _paired(first: Sequence[str], second: Sequence[str], references: Sequence[str]) -> Paired:
    if list(first) == list(second):
        return Paired(0.0, 1.0)  # sacreBLEU would call that significant
    metrics = {"BLEU": BLEU(references=[references])}
    _, scores = PairedTest([("first", first), ("second", second)], metrics, None, "bs", RESAMPLES)()
    base, other = scores["BLEU"]
    assert isinstance(base, Result)
    assert isinstance(other, Result)
    assert other.p_value is not None
    return Paired(round(other.score - base.score, 2), round(other.p_value, 4))
