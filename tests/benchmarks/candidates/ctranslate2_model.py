"""CTranslate2 with a converted checkpoint. Needs `pip install ctranslate2`, but no PyTorch."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from candidates.candidate import Answer, Candidate, Decoding, answers_of
from triptych_serving.text.tokenizers import read_tokenizer

TOKENIZER = "tokenizer.json"
VOCABULARY = "shared_vocabulary.json"
CALIBRATION_PASSES = 3
USUAL_BATCH = 32  # for larger calls, several batches of similar length may be faster
TYPES = {"fp32": "float32", "int8-caches": "int8", "int8-shortlist": "int8"}  # other precisions have CTranslate2's own names


@dataclass(frozen=True)
class Split:
    """Division of the CPUs: `workers` concurrent batches with `threads` each."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


@dataclass(frozen=True)
class Batching:
    """Settings of a call."""

    split: Split
    share: int  # sentences per batch; CTranslate2 sorts a call by length before it splits it

    def __str__(self) -> str:
        return f"{self.split} threads, batches of {self.share}"


def splits(cpus: int) -> list[Split]:
    """Return the splits worth trying."""
    return [Split(cpus, 1), Split(1, cpus)] if cpus > 1 else [Split(1, 1)]


class CTranslate2Model(Candidate):
    """CTranslate2 with a model per split; `tune` chooses the fastest. GPUs ignore the threads.

    Args:
        folder: Converted model.
        precision: fp32, or a compute type of CTranslate2.
        among: Splits of the CPUs; the first is used until `tune`.
        device: "cpu", "cuda" or "cuda:1".
    """

    name, family = "CTranslate2", "CTranslate2"

    def __init__(self, folder: Path, precision: str, among: Sequence[Split], device: str) -> None:
        self._tokenizer = read_tokenizer(folder / TOKENIZER)
        pieces = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
        self._ids = {piece: index for index, piece in enumerate(pieces)}
        self._translators = {split: _open(folder, precision, split, device) for split in among}
        self._batching = Batching(among[0], USUAL_BATCH)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        sources = [encoding.tokens for encoding in self._tokenizer.encode_batch(list(texts))]
        results = self._translators[self._batching.split].translate_batch(
            sources,
            beam_size=decoding.beam,
            patience=1,
            length_penalty=1,
            max_batch_size=self._batching.share,
            max_input_length=0,
            min_decoding_length=decoding.least,
            max_decoding_length=decoding.limit,
        )
        rows = [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]
        return answers_of(self._tokenizer, rows)

    def tune(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> None:
        tried = [batching for split in self._translators for batching in _batchings(split, max(map(len, calls)))]
        timed = len(tried) > 1
        self._batching = min(tried, key=lambda one: self._seconds(one, calls, decoding)) if timed else tried[0]
        self.settings = str(self._batching)

    def _seconds(self, batching: Batching, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
        self._batching = batching
        times = []
        for _ in range(CALIBRATION_PASSES):
            started = time.perf_counter()
            for call in calls:
                self.translate(call, decoding)
            times.append(time.perf_counter() - started)
        return min(times)


def _batchings(split: Split, batch: int) -> list[Batching]:
    share = -(-batch // split.workers)
    return [Batching(split, size) for size in sorted({share, min(share, USUAL_BATCH)})]


def _open(folder: Path, precision: str, split: Split, device: str) -> Any:
    import ctranslate2  # type: ignore[import-untyped]  # reads the variables of its back end

    kind, _, index = device.partition(":")
    return ctranslate2.Translator(
        str(folder),
        kind,
        device_index=int(index or 0),
        compute_type=TYPES.get(precision, precision),
        inter_threads=split.workers,
        intra_threads=split.threads,
    )
