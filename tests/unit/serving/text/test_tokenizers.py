"""Calls of tokenizers, for one input and for several."""

import pytest
from tokenizers.processors import BertProcessing

from triptych_serving.text.tokenizers import SHORT, Encoding, decode_rows, encode_inputs, read_tokenizer

from ....fixtures.toy import BUNDLE, TARGETS

TOKENIZER = read_tokenizer(BUNDLE / "tokenizer.json")
TOKENIZER.post_processor = BertProcessing(("</s>", 2), ("<s>", 1))
LONG = "a " * SHORT


def parts(encoding: Encoding) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    return encoding.ids, encoding.type_ids, encoding.offsets


@pytest.mark.parametrize("one", [TARGETS[0], (TARGETS[0], TARGETS[1]), "", LONG, (LONG, "a")])
@pytest.mark.parametrize("special", [True, False])
def test_an_input_has_the_same_encoding_alone_and_beside_others(one: str | tuple[str, str], special: bool) -> None:
    alone = encode_inputs(TOKENIZER, [one], offsets=True, add_special_tokens=special)
    first, _ = encode_inputs(TOKENIZER, [one, one], offsets=True, add_special_tokens=special)
    assert [parts(encoding) for encoding in alone] == [parts(first)]
    assert [encoding.ids for encoding in encode_inputs(TOKENIZER, [one], add_special_tokens=special)] == [first.ids]


@pytest.mark.parametrize("text", ["\ud800", "\ud800" * (SHORT + 1)])
def test_lone_surrogates_are_type_errors(text: str) -> None:
    with pytest.raises(TypeError):
        encode_inputs(TOKENIZER, [text])


@pytest.mark.parametrize("size", [0, 1, SHORT + 1])
def test_a_row_has_the_same_text_alone_and_beside_others(size: int) -> None:
    row = (TOKENIZER.encode(TARGETS[0], add_special_tokens=False).ids * SHORT)[:size]
    assert decode_rows(TOKENIZER, [row]) * 2 == decode_rows(TOKENIZER, [row, row])
