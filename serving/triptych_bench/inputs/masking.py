"""Texts whose words are to be guessed."""

import random
import re
from collections.abc import Sequence

from triptych_bench.target import Sample

WORD = re.compile(r"\b[^\W\d_]+\b")


def masked(samples: Sequence[Sample], mask: str, seed: int) -> list[Sample]:
    """Texts with `mask` in them stay; in all others it stands for one word, which is the reference from then on.

    Args:
        samples: texts; those without a word are left out.
        mask: the model's own mask token.
        seed: of the choice.
    """
    rng = random.Random(seed)
    return [sample if mask in sample.data else _mask(sample, mask, rng) for sample in samples if WORD.search(sample.data)]


def _mask(sample: Sample, mask: str, rng: random.Random) -> Sample:
    text: str = sample.data
    found = rng.choice(list(WORD.finditer(text)))
    return Sample(text[: found.start()] + mask + text[found.end() :], sample.name, found[0])
