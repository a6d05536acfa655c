"""Teacher forcing over the step graph for CUDA, on the CPU: which token would follow each of PyTorch's own.

Every row gets the tokens that PyTorch gave, so that one token that differs does not change those behind it. The graph runs as
it is served: its outputs lie over its inputs, and only the tokens are put back in place.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_export.errors import ParityError
from triptych_export.parity.comparison import LEAST_AGREEMENT
from triptych_export.parity.translation import Sample
from triptych_export.samples import chunks
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationGraphs, TranslationManifest
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session

FREE = -1  # in `forced`: nothing is
Ids = list[int]


class ForcedDecoder:
    """Answers a token at a time.

    Args:
        bundle: of a translation model.
        precision: of graphs for CUDA.
        count: rows at once.
    """

    def __init__(self, bundle: Bundle, precision: str, count: int) -> None:
        self._manifest = manifest = bundle.manifest_of(TranslationManifest)
        graphs: TranslationGraphs = manifest.precisions[precision]
        self._encoder, step = (Session(bundle.path(name)) for name in (graphs.encoder, graphs.step))
        shape, limits = manifest.decoder, manifest.limits
        names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        source, target = (max(2, tokens) for tokens in (limits.max_source_tokens, limits.max_target_tokens))
        cache = np.zeros((len(names), count, shape.heads, target, shape.head_dim), np.float16)
        self._memory = np.zeros((len(names), count, 1, source, shape.heads * shape.head_dim), np.float16)
        self._tokens, self._positions = np.zeros(count, np.int64), np.zeros(count, np.int32)
        self._lengths = np.ones(count, np.int64)
        self._count = count
        inputs: dict[str, NDArray[Any]] = {
            "tokens": self._tokens,
            "positions": self._positions,
            "lengths": self._lengths,
            "forced": np.full(count, FREE, np.int64),
            **{f"cache_{name}": part for name, part in zip(names, cache, strict=True)},
            **{f"memory_{name}": part for name, part in zip(names, self._memory, strict=True)},
        }
        outputs: dict[str, NDArray[Any]] = {
            "next": self._tokens,
            "advanced": self._positions,
            **{f"present_{name}": part for name, part in zip(names, cache, strict=True)},
        }
        self._binding = step.bind(inputs, outputs)

    def follow(self, sources: Sequence[Ids], answers: Sequence[Ids]) -> list[Ids]:
        """For each answer, the tokens that the graph gives where the answer's own stand, and at its end one more."""
        parts = zip(chunks(sources, self._count), chunks(answers, self._count), strict=True)
        return list(chain.from_iterable(self._follow(*part) for part in parts))

    def _follow(self, sources: Sequence[Ids], answers: Sequence[Ids]) -> list[Ids]:
        rows, special = len(sources), self._manifest.tokens
        lengths = np.array([len(source) for source in sources], np.int32)
        padded = stack_rows(sources, special.pad, np.int64)
        [memory] = self._encoder.run({"source": padded, "lengths": lengths})
        self._memory[:, :rows, :, : padded.shape[1]] = memory
        self._lengths[:rows] = lengths
        self._positions[:] = 0
        given = stack_rows([[special.start, *answer] for answer in answers], special.pad, np.int64)
        found = np.zeros_like(given)
        for place in range(given.shape[1]):
            self._tokens[:rows] = given[:, place]
            self._binding.run()
            found[:, place] = self._tokens[:rows]
        return [_row(found, index, len(answer)) for index, answer in enumerate(answers)]


def forced_agreement(found: Sequence[Ids], sample: Sample, end: int) -> dict[str, float | int]:
    """How many tokens are PyTorch's own, ends included and prefixes not."""
    prefixes = sample.prefixes or [()] * len(sample.expected)
    pairs = [
        pair
        for got, answer, prefix in zip(found, sample.expected, prefixes, strict=True)
        for pair in list(zip(got, _until_end(answer, sample.max_length, end), strict=False))[len(prefix) :]
    ]
    equal = sum(got == want for got, want in pairs)
    return {
        "forced_tokens": len(pairs),
        "forced_token_agreement_percent": round(100 * equal / max(1, len(pairs)), 3),
    }


def check_agreement(report: Mapping[str, float]) -> None:
    """Look at what `forced_agreement` counted; of numbers that are not finite hardly any token comes out right.

    Raises:
        ParityError: too few tokens are PyTorch's.
    """
    percent = report["forced_token_agreement_percent"]
    if report["forced_tokens"] and percent < LEAST_AGREEMENT:
        raise ParityError(
            f"fp16: {percent} % of {report['forced_tokens']:,} tokens behind PyTorch's own are PyTorch's; "
            f"at least {LEAST_AGREEMENT:g} % must be"
        )


def _until_end(answer: Ids, longest: int, end: int) -> Ids:
    """What PyTorch gave, place by place; an answer that was cut has no end."""
    return [*answer, end] if len(answer) < longest else answer


def _row(found: NDArray[np.int64], index: int, length: int) -> Ids:
    row: Ids = found[index, : length + 1].tolist()
    return row
