"""Proof that a bundle answers as its checkpoint does: the serving engine's tokens against PyTorch's own greedy decoding.

The engine runs with 1, 3 and 16 slots over sentences of mixed length, refilling every slot the moment it is free, so rows of
one step stand at different positions and sources of different length lie side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych_export.errors import ParityError, SourceError
from triptych_serving.bundle import Bundle, open_bundle
from triptych_serving.engine import EngineOptions
from triptych_serving.row import Row
from triptych_serving.scheduler import SchedulerLimits
from triptych_serving.translator import Translator, TranslatorOptions
from triptych_training.greedy import greedy
from triptych_training.transformer import Transformer

BATCHES = (1, 3, 16)
MIN_SENTENCES, MIN_DISTINCT = 200, 150
Ids = list[int]


@dataclass(frozen=True)
class Sample:
    """Sentences as ids and PyTorch's greedy answer to each."""

    sources: Sequence[Ids]
    expected: Sequence[Ids]
    max_length: int


def make_sample(model: Transformer, sources: Sequence[Ids], max_length: int) -> Sample:
    """Decode `sources` in PyTorch.

    Raises:
        SourceError: too few sentences, or too few different answers for a comparison to mean anything.
    """
    if len(sources) < MIN_SENTENCES:
        raise SourceError(f"parity needs at least {MIN_SENTENCES} sentences, got {len(sources)}; name a larger --valid file")
    expected = greedy(model, sources, max_length)
    distinct = len(set(map(tuple, expected)))
    if distinct < MIN_DISTINCT:
        raise SourceError(
            f"parity needs at least {MIN_DISTINCT} different translations, the model gives {distinct} "
            f"for {len(sources)} sentences: it is not trained enough for a comparison to mean anything"
        )
    return Sample(sources, expected, max_length)


def check_parity(folder: Path, precision: str, sample: Sample) -> dict[str, object]:
    """Compare every token; returns the report for the manifest.

    Raises:
        ParityError: any token differs; shows the first difference.
    """
    bundle = open_bundle(folder)
    for slots in BATCHES:
        outputs = decode(bundle, precision, sample.sources, sample.max_length, slots)
        _compare(sample, outputs, slots)
    return {
        "sentences": len(sample.sources),
        "distinct_outputs": len(set(map(tuple, sample.expected))),
        "tokens": sum(map(len, sample.expected)),
        "batches": list(BATCHES),
        "identical": True,
    }


def agreement(expected: Sequence[Ids], outputs: Sequence[Ids]) -> dict[str, float]:
    """How near a quantized variant's free-running answers are, in percent: equal sentences, tokens equal in their place."""
    equal = sum(a == b for a, b in zip(expected, outputs, strict=True))
    places = sum(max(len(a), len(b)) for a, b in zip(expected, outputs, strict=True))
    hits = sum(x == y for a, b in zip(expected, outputs, strict=True) for x, y in zip(a, b, strict=False))
    return {
        "identical_sentences_percent": round(100 * equal / len(expected), 2),
        "token_agreement_percent": round(100 * hits / max(1, places), 2),
    }


def decode(bundle: Bundle, precision: str, sources: Sequence[Ids], max_length: int, slots: int) -> list[Ids]:
    """Greedy answers of the serving engine, one worker with `slots` rows."""
    limits = SchedulerLimits(waiting_rows=len(sources), waiting_tokens=1 << 30, refill_rows=1)
    translator = Translator("parity", 1, bundle, TranslatorOptions(precision, EngineOptions(1, slots, limits)))
    try:
        rows = [Row(source, max_length) for source in sources]
        translator.run(rows)
        return [row.tokens for row in rows]
    finally:
        translator.close()


def _compare(sample: Sample, outputs: Sequence[Ids], slots: int) -> None:
    different = [i for i, (a, b) in enumerate(zip(sample.expected, outputs, strict=True)) if a != b]
    if different:
        first = different[0]
        a, b = sample.expected[first], outputs[first]
        place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        raise ParityError(
            f"{len(different)} of {len(outputs)} sentences differ from PyTorch with {slots} rows at once; "
            f"sentence {first} at token {place}: PyTorch {a[place : place + 5]}, bundle {b[place : place + 5]}"
        )
