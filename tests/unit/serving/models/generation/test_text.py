"""The text of generated tokens: in pieces the same as in one."""

import pytest
from tokenizers import Tokenizer, decoders, models

from triptych_serving.models.generation.text import TextBuilder
from triptych_serving.scheduling.request import Row

PIECES = ["<s>", "<unk>", "▁", "▁a", "▁b", "c", "<0xE2>", "<0x82>", "<0xAC>"]
START, UNKNOWN, SPACE, A, B, C, *EURO = range(len(PIECES))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    vocabulary = {piece: index for index, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(PIECES[:2])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


@pytest.mark.parametrize(
    ("prompt", "tokens", "text"),
    [
        ([START], [A, C, B], "ac b"),
        ([START], [SPACE, A], " a"),
        ([START, A], [B, UNKNOWN, B, C], " b bc"),
        ([START, A], [UNKNOWN, UNKNOWN, B], " b"),
        ([START, A], [*EURO, *EURO, B], "€€ b"),
        ([START, A], [*EURO, *EURO[:2]], "€��"),
        ([START, A], [*EURO, EURO[0], B, *EURO], "€� b€"),
        ([START, A], [*EURO, EURO[1], EURO[1], *EURO], "€�����"),  # never whole again, as long as the run lasts
        ([START, *EURO], [*EURO, B], "€ b"),
        ([START, *EURO], [*EURO[:2], B], "�� b"),
    ],
)
def test_pieces_add_up_to_the_text(tokenizer: Tokenizer, prompt: list[int], tokens: list[int], text: str) -> None:
    row = Row(prompt[:1], 100, prefix=tuple(prompt[1:]), prompt=len(prompt) - 1)
    for size in range(1, len(tokens) + 1):
        builder = TextBuilder(tokenizer, row, ())
        pieces = [builder.add(tokens[:end]) for end in range(size, len(tokens) + 1, size)]
        assert "".join([*pieces, builder.add(tokens, is_last=True)]) == builder.text == text
        assert builder.add(tokens, is_last=True) == ""
    assert [*map(TextBuilder(tokenizer, row, ()).add, ([UNKNOWN], [UNKNOWN, *EURO]))] == ["", "€"]
