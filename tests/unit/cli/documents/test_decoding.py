"""Options that make answers different."""

import pytest

from triptych_cli.common.decoding import Decoding
from triptych_embedded.decoding import given


@pytest.mark.parametrize("name", ["length_penalty", "sampling_topk", "seed", "coverage_penalty", "no_repeat_ngram_size"])
def test_zero_is_an_option(name: str) -> None:
    assert given(Decoding(**{name: 0})) == {name: 0}


def test_what_is_left_to_the_model_is_not_there() -> None:
    assert given(Decoding()) == {}
    assert given(Decoding(beam_size=4, suppress_sequences=("no",))) == {"beam_size": 4, "suppress_sequences": ("no",)}
