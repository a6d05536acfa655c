"""CTranslate2 over a folder that `peers.convert` wrote. Needs `pip install ctranslate2`; no torch."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from candidate import Answer, Candidate, Decoding

from triptych_serving.text.tokenizers import read_tokenizer

TOKENIZER = "tokenizer.json"
VOCABULARY = "shared_vocabulary.json"
CALIBRATION_PASSES = 3
USUAL_BATCH = 32  # beyond, several smaller batches of like length may be faster
TYPES = {"fp32": "float32", "int8": "int8"}  # other names of precisions are CTranslate2's own


@dataclass(frozen=True)
class Split:
    """Of the CPUs: `workers` batches at once, `threads` in each."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


@dataclass(frozen=True)
class Plan:
    """How a call is run."""

    split: Split
    share: int  # sentences of one worker's batch; CTranslate2 sorts a call by length before it cuts it

    def __str__(self) -> str:
        return f"{self.split} threads, batches of {self.share}"


def splits(cpus: int) -> list[Split]:
    """Those worth trying."""
    return [Split(cpus, 1), Split(1, cpus)] if cpus > 1 else [Split(1, 1)]


class Ct2Peer(Candidate):
    """All splits are kept ready; `tune` takes the fastest, else it is the first. On a GPU threads mean nothing."""

    name, family = "CTranslate2", "CTranslate2"

    def __init__(self, folder: Path, precision: str, among: Sequence[Split], device: str = "cpu") -> None:
        self._tokenizer = read_tokenizer(folder / TOKENIZER)
        pieces = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
        self._ids = {piece: index for index, piece in enumerate(pieces)}
        self._translators = {split: _open(folder, precision, split, device) for split in among}
        self._plan = Plan(among[0], USUAL_BATCH)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        sources = [encoding.tokens for encoding in self._tokenizer.encode_batch(list(texts))]
        results = self._translators[self._plan.split].translate_batch(
            sources,
            beam_size=decoding.beam,
            patience=1,
            length_penalty=1,
            max_batch_size=self._plan.share,
            max_input_length=0,
            min_decoding_length=decoding.least,
            max_decoding_length=decoding.limit,
        )
        rows = [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]
        return [Answer(text, len(row)) for text, row in zip(self._tokenizer.decode_batch(rows), rows, strict=True)]

    def tune(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> None:
        plans = [plan for split in self._translators for plan in _plans(split, max(map(len, calls)))]
        self._plan = min(plans, key=lambda plan: self._seconds(plan, calls, decoding)) if len(plans) > 1 else plans[0]
        self.settings = str(self._plan)

    def _seconds(self, plan: Plan, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
        self._plan = plan
        times = []
        for _ in range(CALIBRATION_PASSES):
            started = time.perf_counter()
            for call in calls:
                self.translate(call, decoding)
            times.append(time.perf_counter() - started)
        return min(times)


def _plans(split: Split, batch: int) -> list[Plan]:
    share = -(-batch // split.workers)
    return [Plan(split, size) for size in sorted({share, min(share, USUAL_BATCH)})]


def _open(folder: Path, precision: str, split: Split, device: str) -> Any:
    import ctranslate2  # type: ignore[import-untyped]  # once its back end is chosen (isa.py)

    kind, _, index = device.partition(":")
    return ctranslate2.Translator(
        str(folder),
        kind,
        device_index=int(index or 0),
        compute_type=TYPES.get(precision, precision),
        inter_threads=split.workers,
        intra_threads=split.threads,
    )
