"""Rows of the offline table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import agreement
import bootstrap
from agreement import Agreement
from bootstrap import Paired
from contest import Case, Measured
from exact import Texts
from tokenizers import Tokenizer

PEER, OWN = "CTranslate2", "Triptych"  # families


@dataclass(frozen=True)
class Result:
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
    bleu: float | None
    same: Agreement | None
    paired: Paired | None  # Triptych's BLEU against CTranslate2's


def results_of(case: Case, measured: Sequence[Measured], exact: Texts, tokenizer: Tokenizer) -> Iterator[Result]:
    """One for each candidate. Without quality where all translations have one length."""
    peer = next((m for m in measured if m.candidate.family == PEER), None)
    for own in measured:
        quality = None if case.decoding.exact else own
        yield Result(
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
            bleu=bootstrap.bleu(own.texts, case.examples.references) if quality else None,
            same=_same(case, quality, exact, tokenizer) if quality else None,
            paired=_paired(case, quality, peer) if quality else None,
        )


def _same(case: Case, own: Measured, exact: Texts, tokenizer: Tokenizer) -> Agreement | None:
    """With fp32: with Triptych's for Triptych in another precision, if there is one; with CTranslate2's for all others."""
    families = [PEER] if case.precision == "fp32" else [own.candidate.family, PEER]
    keys = [(family, case.examples.name, case.decoding.beam) for family in families]
    expected = next((exact[key] for key in keys if key in exact), None)
    return None if expected is None else agreement.compare(tokenizer, expected, own.texts)


def _paired(case: Case, own: Measured, peer: Measured | None) -> Paired | None:
    if peer is None or own.candidate.family != OWN:
        return None
    return bootstrap.compare(peer.texts, own.texts, case.examples.references)
