"""How many threads and runs an encoder gets."""

import pytest

from triptych_serving.encoding.options import SMALL_BYTES, EncoderOptions

SMALL, LARGE = SMALL_BYTES - 1, SMALL_BYTES


@pytest.mark.parametrize(
    ("options", "weight_bytes", "cpus", "threads", "runs"),
    [
        (EncoderOptions(), SMALL, 1, 1, 1),
        (EncoderOptions(), SMALL, 8, 1, 8),
        (EncoderOptions(), LARGE, 1, 1, 1),
        (EncoderOptions(), LARGE, 2, 2, 1),
        (EncoderOptions(), LARGE, 16, 4, 4),
        (EncoderOptions(), LARGE, 7, 4, 1),
        (EncoderOptions(threads=3), SMALL, 8, 3, 2),
        (EncoderOptions(threads=16), LARGE, 8, 16, 1),
        (EncoderOptions(runs=4), LARGE, 8, 2, 4),
        (EncoderOptions(runs=16), LARGE, 8, 1, 16),
        (EncoderOptions(threads=2, runs=3), SMALL, 1, 2, 3),
    ],
)
def test_cpus_are_shared(options: EncoderOptions, weight_bytes: int, cpus: int, threads: int, runs: int) -> None:
    inside, engine = options.engine(weight_bytes, cpus)
    assert (inside, engine.runs) == (threads, runs)
