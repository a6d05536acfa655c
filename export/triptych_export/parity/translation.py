"""Parity of a translation bundle: the serving engine's tokens against PyTorch's greedy decoding.

The engine runs with 1, 3 and 16 slots over sentences of mixed length and refills each slot as soon as it is free, so the rows
of a step are at different positions and have sources of different lengths. The graphs for CUDA run on the CPU, under teacher
forcing.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from triptych_export.errors import ParityError, SourceError
from triptych_export.onnx_files.decoder import OnnxSeq2Seq, Seq2Seq
from triptych_export.parity.comparison import BATCHES, TIE, affordable, batches_of, chunks, tokens_per_second, workers_for
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.kv_cache import cache_lengths, cache_names
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.request import Row
from triptych_training.decoding.greedy import greedy
from triptych_training.models.rnn import TranslationModel

MIN_SENTENCES, MIN_DISTINCT = 200, 150
FREE = -1  # in the input `forced`: no forced token
Ids = list[int]
Ties = Set[tuple[int, int]]  # (position, token) of tokens as likely as the generated one


@dataclass(frozen=True)
class ParitySample:
    """Framed source ids, and PyTorch's greedy translation of each, which begins with its prefix."""

    sources: Sequence[Ids]
    expected: Sequence[Ids]
    max_length: int
    prefixes: Sequence[tuple[int, ...]] = ()  # empty, or one for each source
    ties: Sequence[Ties] = ()  # empty, or PyTorch's ties for each source


def make_sample(model: TranslationModel, sources: Sequence[Ids], max_length: int, untrained: bool = False) -> ParitySample:
    """Decode `sources` in PyTorch; an `untrained` model may give few distinct translations.

    Raises:
        SourceError: too few sentences, or too few distinct translations for a meaningful comparison.
    """
    if len(sources) < MIN_SENTENCES:
        raise SourceError(
            f"parity: {len(sources)} sentences given, at least {MIN_SENTENCES} are needed; pass a larger --valid file"
        )
    expected = greedy(model, sources, max_length)
    distinct = len(set(map(tuple, expected)))
    if distinct < MIN_DISTINCT and not untrained:
        raise SourceError(
            f"parity: the model gives {distinct} distinct translations of {len(sources)} sentences, "
            f"at least {MIN_DISTINCT} are needed; train it longer, or add --allow-untrained"
        )
    return ParitySample(sources, expected, max_length)


def make_framed_sample(
    model: Seq2Seq,
    sources: Sequence[Ids],
    prefixes: Sequence[tuple[int, ...]],
    max_length: int,
    suppressed: tuple[int, ...],
    untrained: bool = False,
) -> ParitySample:
    """Decode framed `sources` in PyTorch, each with its prefix; for models trained elsewhere.

    An `untrained` one, or one that answers with labels, may give few distinct translations.

    Raises:
        SourceError: fewer than half of the translations are distinct.
    """
    expected = translate_framed(model, sources, prefixes, max_length, suppressed)
    distinct = len(set(map(tuple, expected)))
    if 2 * distinct < len(sources) and not untrained:
        raise SourceError(
            f"parity: the model gives {distinct} distinct translations of {len(sources)} sentences, at least half are needed; "
            f"pass sentences of the model's own domain with --valid or, if it answers with a few labels, add --allow-untrained"
        )
    return ParitySample(sources, expected, max_length, prefixes, find_ties(model, sources, expected, suppressed))


def translate_framed(
    model: Seq2Seq, sources: Sequence[Ids], prefixes: Sequence[tuple[int, ...]], max_length: int, suppressed: tuple[int, ...]
) -> list[Ids]:
    """Decode framed `sources` greedily in PyTorch, or with the ONNX files that are kept, each with its prefix."""
    if isinstance(model, OnnxSeq2Seq):
        return [model.translate(ids, max_length, prefix, suppressed) for ids, prefix in zip(sources, prefixes, strict=True)]
    return greedy(model, sources, max_length, prefixes, suppressed)


@torch.inference_mode()
def find_ties(model: Seq2Seq, sources: Sequence[Ids], answers: Sequence[Ids], suppressed: tuple[int, ...] = ()) -> list[Ties]:
    """Find positions and tokens whose logit is within TIE of the generated token's."""
    found: list[Ties] = []
    for source, answer in zip(sources, answers, strict=True):
        target = torch.tensor([[model.config.bos_id, *answer]])
        logits = model(torch.tensor([source]), target)[0]  # [tokens + 1, V]
        logits[:, list(suppressed)] = -torch.inf
        given = logits.gather(1, torch.tensor([*answer, model.config.eos_id])[:, None])
        found.append({(place, token) for place, token in ((logits - given).abs() < TIE).nonzero().tolist()})
    return found


def check_parity(folder: Path, precision: str, sample: ParitySample) -> dict[str, object]:
    """Compare every token with PyTorch; returns the report for the manifest.

    The largest batch decodes all sentences, and smaller ones a part of them. If PyTorch scores two tokens alike, the bundle may
    choose either; the rest of that sentence is then not compared.

    Raises:
        ParityError: any token differs; shows the first difference.
    """
    bundle = open_bundle(folder)
    end = bundle.manifest_of(TranslationManifest).tokens.end
    ties: set[int] = set()
    batches = batches_of(bundle, len(sample.sources))
    for slots, chosen in batches.items():
        sources, prefixes = [sample.sources[i] for i in chosen], [sample.prefixes[i] for i in chosen if sample.prefixes]
        outputs = decode(bundle, precision, sources, sample.max_length, slots, prefixes)
        ties |= _compare(sample, dict(zip(chosen, outputs, strict=True)), slots, end)
    return {
        "sentences": len(sample.sources),
        "distinct_outputs": len(set(map(tuple, sample.expected))),
        "tokens": sum(map(len, sample.expected)),
        "batches": list(batches),
        "identical": not ties,
        **({"ties": len(ties)} if ties else {}),
    }


def agreement(expected: Sequence[Ids], outputs: Sequence[Ids]) -> dict[str, float]:
    """Compare free-running translations, in percent: equal sentences, and equal tokens by position.

    Up to its first difference, a translation continues the tokens that PyTorch continues. The share of these decisions that
    agree, the end included, does not count what a difference changes after it: `next_token_agreement_percent`.
    """
    equal = sum(a == b for a, b in zip(expected, outputs, strict=True))
    places = sum(max(len(a), len(b)) for a, b in zip(expected, outputs, strict=True))
    hits = sum(x == y for a, b in zip(expected, outputs, strict=True) for x, y in zip(a, b, strict=False))
    decisions = sum(min(_fork(a, b), len(a)) + 1 for a, b in zip(expected, outputs, strict=True))
    return {
        "decisions": decisions,
        "next_token_agreement_percent": round(100 * (decisions - len(expected) + equal) / max(1, decisions), 2),
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
    """Decode greedily with the serving engine, whose workers have `slots` rows."""
    with _open_translator(bundle, precision, slots, len(sources), workers_for(len(sources), slots)) as translator:
        return _translate(translator, sources, max_length, prefixes)


def speeds(bundle: Bundle, precision: str, sample: ParitySample) -> dict[str, float]:
    """Measure tokens per second of greedy decoding on the CPU, with one row and with several."""
    found = {}
    for rows in BATCHES[::2]:
        with _open_translator(bundle, precision, affordable(bundle, rows), rows) as translator:
            decoding = partial(_translate, translator, sample.sources[:rows], sample.max_length, sample.prefixes[:rows])
            found[f"tokens_per_second_{rows}_rows"] = tokens_per_second(decoding)
    return found


@contextmanager
def _open_translator(bundle: Bundle, precision: str, slots: int, waiting: int, workers: int = 1) -> Iterator[Translator]:
    limits = DecodeLimits(waiting_rows=waiting, waiting_tokens=1 << 30, refill_rows=1)
    translator = Translator("parity", 1, bundle, DecodeModelOptions(precision, EngineOptions(workers, slots, limits)))
    try:
        yield translator
    finally:
        translator.close()


def _translate(
    translator: Translator, sources: Sequence[Ids], max_length: int, prefixes: Sequence[tuple[int, ...]]
) -> list[Ids]:
    starts = prefixes or [()] * len(sources)
    rows = [Row(source, max_length, prefix=prefix) for source, prefix in zip(sources, starts, strict=True)]
    translator.run(rows)
    return [row.tokens for row in rows]


def _compare(sample: ParitySample, outputs: Mapping[int, Ids], slots: int, end: int) -> set[int]:
    """Return the indices of sentences that differ by a tie; raise ParityError for any other difference."""
    different = [index for index, output in outputs.items() if sample.expected[index] != output]
    wrong = [index for index in different if not _is_tie(sample, index, outputs[index], end)]
    if wrong:
        first = wrong[0]
        a, b = sample.expected[first], outputs[first]
        place = _fork(a, b)
        raise ParityError(
            f"{len(different)} of {len(outputs)} sentences differ from PyTorch in batches of {slots} rows; "
            f"sentence {first} at token {place}: PyTorch {a[place : place + 5]}, bundle {b[place : place + 5]}"
        )
    return set(different)


def _is_tie(sample: ParitySample, index: int, output: Ids, end: int) -> bool:
    """Tell whether the two translations first differ at a tie."""
    if not sample.ties:
        return False
    place = _fork(sample.expected[index], output)
    return (place, (*output, end)[place]) in sample.ties[index]


def _fork(a: Ids, b: Ids) -> int:
    """Return the first position at which two translations differ."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def teacher_force(bundle: Bundle, precision: str, count: int, sources: Sequence[Ids], answers: Sequence[Ids]) -> list[Ids]:
    """Return, for each answer, the CUDA step graph's prediction at each of its tokens and one more at its end.

    Every row, of `count` at a time, is fed its answer's tokens, so that one differing token does not change those after it. The
    graph runs as it is served: outputs share memory with inputs, and only the tokens are overwritten between steps.
    """
    manifest = bundle.manifest_of(TranslationManifest)
    graphs, shape, special = manifest.precisions[precision], manifest.decoder, manifest.tokens
    encoder, step = (Session(bundle.path(name)) for name in (graphs.encoder, graphs.step))
    names, (target, source) = cache_names(shape.layers), cache_lengths(manifest.limits)
    cache = np.zeros((len(names), count, shape.heads, target, shape.head_dim), np.float16)
    memory = np.zeros((len(names), count, 1, source, shape.heads * shape.head_dim), np.float16)
    tokens, positions, lengths = np.zeros(count, np.int64), np.zeros(count, np.int32), np.ones(count, np.int64)
    inputs: dict[str, NDArray[Any]] = {
        "tokens": tokens,
        "positions": positions,
        "lengths": lengths,
        "forced": np.full(count, FREE, np.int64),
        **{f"cache_{name}": part for name, part in zip(names, cache, strict=True)},
        **{f"memory_{name}": part for name, part in zip(names, memory, strict=True)},
    }
    kept = {f"present_{name}": part for name, part in zip(names, cache, strict=True)}
    binding = step.bind(inputs, {"next": tokens, "advanced": positions, **kept})
    predicted: list[Ids] = []
    for texts, wanted in zip(chunks(sources, count), chunks(answers, count), strict=True):
        rows = len(texts)
        sizes = np.array([len(text) for text in texts], np.int32)
        padded = stack_rows(texts, special.pad, np.int64)
        [encoded] = encoder.run({"source": padded, "lengths": sizes})
        memory[:, :rows, :, : padded.shape[1]] = encoded
        lengths[:rows] = sizes
        positions[:] = 0
        given = stack_rows([[special.start, *answer] for answer in wanted], special.pad, np.int64)
        found = np.zeros_like(given)
        for place in range(given.shape[1]):
            tokens[:rows] = given[:, place]
            binding.run()
            found[:, place] = tokens[:rows]
        predicted += [row[: len(answer) + 1] for row, answer in zip(found[:rows].tolist(), wanted, strict=True)]
    return predicted


def forced_agreement(found: Sequence[Ids], sample: ParitySample, end: int) -> dict[str, float | int]:
    """Count the tokens that equal PyTorch's, including ends, excluding prefixes."""
    prefixes = sample.prefixes or [()] * len(sample.expected)
    pairs: list[tuple[int, int]] = []
    for got, answer, prefix in zip(found, sample.expected, prefixes, strict=True):
        wanted = [*answer, end] if len(answer) < sample.max_length else answer  # else it was cut off
        pairs += list(zip(got, wanted, strict=False))[len(prefix) :]
    equal = sum(got == want for got, want in pairs)
    return {"forced_tokens": len(pairs), "forced_token_agreement_percent": round(100 * equal / max(1, len(pairs)), 3)}
