"""Teacher forcing of the CUDA step graph on the CPU: predict the token after each of PyTorch's tokens.

Every row is fed PyTorch's tokens, so that one differing token does not change those after it. The graph runs as it is served:
outputs share memory with inputs, and only the tokens are overwritten between steps.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_export.parity.comparison import chunks
from triptych_export.parity.translation import ParitySample
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationGraphs, TranslationManifest
from triptych_serving.decoding.kv_cache import cache_lengths, cache_names
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session

FREE = -1  # in the input `forced`: no forced token
Ids = list[int]


class ForcedDecoder:
    """Step-by-step decoder over the CUDA graphs of a translation bundle's precision, with `count` rows per batch."""

    def __init__(self, bundle: Bundle, precision: str, count: int) -> None:
        self._manifest = manifest = bundle.manifest_of(TranslationManifest)
        graphs: TranslationGraphs = manifest.precisions[precision]
        self._encoder, step = (Session(bundle.path(name)) for name in (graphs.encoder, graphs.step))
        shape, limits = manifest.decoder, manifest.limits
        names, (target, source) = cache_names(shape.layers), cache_lengths(limits)
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
        """Return, for each answer, the graph's prediction at each of its tokens and one more at its end."""
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
        return [row[: len(answer) + 1] for row, answer in zip(found[:rows].tolist(), answers, strict=True)]


def forced_agreement(found: Sequence[Ids], sample: ParitySample, end: int) -> dict[str, float | int]:
    """Count the tokens that equal PyTorch's, including ends, excluding prefixes."""
    prefixes = sample.prefixes or [()] * len(sample.expected)
    pairs: list[tuple[int, int]] = []
    for got, answer, prefix in zip(found, sample.expected, prefixes, strict=True):
        wanted = [*answer, end] if len(answer) < sample.max_length else answer  # else it was cut off
        pairs += list(zip(got, wanted, strict=False))[len(prefix) :]
    equal = sum(got == want for got, want in pairs)
    return {"forced_tokens": len(pairs), "forced_token_agreement_percent": round(100 * equal / max(1, len(pairs)), 3)}
