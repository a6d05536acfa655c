"""What fp32 answers: the yardstick of the other precisions."""

from collections.abc import Sequence

from candidate import Candidate, Decoding
from examples import Examples

BATCH = 32
Texts = dict[tuple[str, str, int], list[str]]


def exact_texts(candidate: Candidate, sets: Sequence[Examples], decodings: Sequence[Decoding]) -> Texts:
    """Translations by (family, set, beam) of a candidate in fp32."""
    return {
        (candidate.family, examples.name, decoding.beam): [
            answer.text for call in examples.calls(BATCH) for answer in candidate.translate(call, decoding)
        ]
        for examples in sets
        for decoding in decodings
    }
