"""Options of sentences, and the options that identify a translator."""

import pytest

from triptych.decoding import DecodingOptions
from triptych_documents.sentences import SentenceRequest
from triptych_embedded.sentences import chosen_options, sentence_options


@pytest.mark.parametrize("name", ["length_penalty", "sampling_topk", "seed", "coverage_penalty", "no_repeat_ngram_size"])
def test_zero_is_a_choice(name: str) -> None:
    assert chosen_options(DecodingOptions(**{name: 0})) == {name: 0}


def test_options_left_to_the_model_are_not_listed() -> None:
    assert chosen_options(DecodingOptions()) == {}
    options = DecodingOptions(beam_size=4, suppress_sequences=("no",), target_prefix=("p",))
    assert chosen_options(options) == {"beam_size": 4, "suppress_sequences": ("no",), "target_prefix": "p"}


def test_all_sentences_have_the_common_prefix() -> None:
    requests = [SentenceRequest("one"), SentenceRequest("two")]
    assert sentence_options(DecodingOptions(target_prefix=("p",)), requests, aligned=False).target_prefix == ("p", "p")
    assert sentence_options(DecodingOptions(), requests, aligned=True).target_prefix == ()
