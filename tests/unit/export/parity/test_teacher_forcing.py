"""Agreement of teacher-forced tokens with PyTorch."""

import pytest

from triptych_export.parity.translation import ParitySample, forced_agreement

END = 2


@pytest.mark.parametrize(
    ("sample", "found", "tokens", "percent"),
    [
        (ParitySample([[9], [9]], [[5, 6, 7], [8]], max_length=9), [[5, 0, 7, END], [8, END]], 6, 83.333),
        (ParitySample([[9]], [[5, 6]], max_length=9, prefixes=[(5,)]), [[0, 6, END]], 2, 100.0),
        (ParitySample([[9]], [[5, 6]], max_length=2), [[5, 6, 4]], 2, 100.0),
    ],
    ids=["ends count", "prefixes do not count", "a cut output has no end"],
)
def test_counted_tokens(sample: ParitySample, found: list[list[int]], tokens: int, percent: float) -> None:
    report = forced_agreement(found, sample, END)
    assert report == {"forced_tokens": tokens, "forced_token_agreement_percent": percent}
