"""Proof that a bundle answers as its checkpoint does: the serving engine's tokens against PyTorch's own greedy decoding.

The engine runs with 1, 3 and 16 slots over sentences of mixed length, refilling every slot the moment it is free, so rows of
one step stand at different positions and sources of different length lie side by side.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import torch

from triptych_export.errors import ParityError, SourceError
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.request import Row
from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer

BATCHES = (1, 3, 16)
CACHE_BYTES = 768 << 20  # of all rows at once
MIN_SENTENCES, MIN_DISTINCT = 200, 150
TIE = 1e-3  # two logits nearer to each other are one: sums in another order may turn them round
Ids = list[int]
Ties = Set[tuple[int, int]]  # places of an answer with other tokens that were as likely there


@dataclass(frozen=True)
class Sample:
    """Sentences as ids, framed as the model wants them, and PyTorch's greedy answer to each, which begins with its prefix."""

    sources: Sequence[Ids]
    expected: Sequence[Ids]
    max_length: int
    prefixes: Sequence[tuple[int, ...]] = ()  # none at all, or one for each
    ties: Sequence[Ties] = ()  # likewise: where PyTorch was not sure


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


def make_framed_sample(
    model: Transformer,
    sources: Sequence[Ids],
    prefixes: Sequence[tuple[int, ...]],
    max_length: int,
    suppressed: tuple[int, ...],
) -> Sample:
    """Decode framed `sources` in PyTorch, each with its prefix; for models whose training nobody here knows.

    Raises:
        SourceError: fewer than half of the answers differ.
    """
    expected: list[Ids] = [[] for _ in sources]
    for prefix in sorted(set(prefixes)):
        places = [place for place, each in enumerate(prefixes) if each == prefix]
        answers = greedy(model, [sources[place] for place in places], max_length, prefix, suppressed)
        for place, answer in zip(places, answers, strict=True):
            expected[place] = answer
    distinct = len(set(map(tuple, expected)))
    if 2 * distinct < len(sources):
        raise SourceError(
            f"parity needs different translations: the model gives {distinct} for {len(sources)} sentences, less than half as "
            f"many; name sentences that it was trained for with --valid"
        )
    return Sample(sources, expected, max_length, prefixes, find_ties(model, sources, expected, suppressed))


@torch.inference_mode()
def find_ties(
    model: Transformer, sources: Sequence[Ids], answers: Sequence[Ids], suppressed: tuple[int, ...] = ()
) -> list[Ties]:
    """Where other tokens than an answer's have logits too near to its own to tell which is larger, and which tokens."""
    found: list[Ties] = []
    for source, answer in zip(sources, answers, strict=True):
        target = torch.tensor([[model.config.bos_id, *answer]])
        logits = model(torch.tensor([source]), target)[0]  # [tokens + 1, V]
        logits[:, list(suppressed)] = -torch.inf
        given = logits.gather(1, torch.tensor([*answer, model.config.eos_id])[:, None])
        found.append({(place, token) for place, token in ((logits - given).abs() < TIE).nonzero().tolist()})
    return found


def check_parity(folder: Path, precision: str, sample: Sample) -> dict[str, object]:
    """Compare every token; returns the report for the manifest.

    Where two tokens are equally likely to PyTorch too, the bundle may choose the other: what follows is then not compared.

    Raises:
        ParityError: any token differs; shows the first difference.
    """
    bundle = open_bundle(folder)
    end = bundle.manifest_of(TranslationManifest).tokens.end
    ties: set[int] = set()
    batches = sorted({affordable(bundle, rows) for rows in BATCHES})
    for slots in batches:
        outputs = decode(bundle, precision, sample.sources, sample.max_length, slots, sample.prefixes)
        ties |= _compare(sample, outputs, slots, end)
    return {
        "sentences": len(sample.sources),
        "distinct_outputs": len(set(map(tuple, sample.expected))),
        "tokens": sum(map(len, sample.expected)),
        "batches": batches,
        "identical": not ties,
        **({"ties": len(ties)} if ties else {}),
    }


def affordable(bundle: Bundle, rows: int) -> int:
    """As many of the rows as the caches of a large model leave room for, three at the least."""
    manifest = bundle.manifest_of(TranslationManifest)
    shape, limits = manifest.decoder, manifest.limits
    positions = limits.max_source_tokens + limits.max_target_tokens
    row = 4 * 2 * shape.layers * shape.heads * shape.head_dim * positions
    return min(rows, max(3, CACHE_BYTES // row))


def agreement(expected: Sequence[Ids], outputs: Sequence[Ids]) -> dict[str, float]:
    """How near a quantized variant's free-running answers are, in percent: equal sentences, tokens equal in their place."""
    equal = sum(a == b for a, b in zip(expected, outputs, strict=True))
    places = sum(max(len(a), len(b)) for a, b in zip(expected, outputs, strict=True))
    hits = sum(x == y for a, b in zip(expected, outputs, strict=True) for x, y in zip(a, b, strict=False))
    return {
        "identical_sentences_percent": round(100 * equal / len(expected), 2),
        "token_agreement_percent": round(100 * hits / max(1, places), 2),
    }


def decode(
    bundle: Bundle,
    precision: str,
    sources: Sequence[Ids],
    max_length: int,
    slots: int,
    prefixes: Sequence[tuple[int, ...]] = (),
) -> list[Ids]:
    """Greedy answers of the serving engine, one worker with `slots` rows."""
    limits = DecodeLimits(waiting_rows=len(sources), waiting_tokens=1 << 30, refill_rows=1)
    translator = Translator("parity", 1, bundle, TranslatorOptions(precision, EngineOptions(1, slots, limits)))
    try:
        starts = prefixes or [()] * len(sources)
        rows = [Row(source, max_length, prefix=prefix) for source, prefix in zip(sources, starts, strict=True)]
        translator.run(rows)
        return [row.tokens for row in rows]
    finally:
        translator.close()


def _compare(sample: Sample, outputs: Sequence[Ids], slots: int, end: int) -> set[int]:
    """The sentences in which PyTorch itself holds two tokens for equal."""
    different = [i for i, (a, b) in enumerate(zip(sample.expected, outputs, strict=True)) if a != b]
    wrong = [index for index in different if not _is_tie(sample, index, outputs[index], end)]
    if wrong:
        first = wrong[0]
        a, b = sample.expected[first], outputs[first]
        place = _fork(a, b)
        raise ParityError(
            f"{len(different)} of {len(outputs)} sentences differ from PyTorch with {slots} rows at once; "
            f"sentence {first} at token {place}: PyTorch {a[place : place + 5]}, bundle {b[place : place + 5]}"
        )
    return set(different)


def _is_tie(sample: Sample, index: int, output: Ids, end: int) -> bool:
    """The answers part where PyTorch held the bundle's token for as likely as its own."""
    if not sample.ties:
        return False
    place = _fork(sample.expected[index], output)
    return (place, (*output, end)[place]) in sample.ties[index]


def _fork(a: Ids, b: Ids) -> int:
    """The first place at which two answers differ."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
