"""The text of generated tokens: in pieces the same as in one."""

import pytest
from tokenizers import Tokenizer, decoders, models

from triptych_serving.models.generation.text import GrowingChoice, PreparedPrompt, TextBuilder
from triptych_serving.scheduling.request import Finish, Hypothesis, Row, TokenLogProbability

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


@pytest.mark.parametrize("tokens", [[], [B, C]], ids=["ended at once", "two tokens"])
def test_a_stream_returns_each_log_probability_once_from_the_prompt_on(tokenizer: Tokenizer, tokens: list[int]) -> None:
    row = Row([A], 100, scored=True)
    choice = GrowingChoice(0, 0, PreparedPrompt((row,), echo="a"), tokenizer)
    found: list[TokenLogProbability] = []
    for token in tokens:
        row.tokens.append(token)
        row.log_probabilities.append(TokenLogProbability(token, -1.0))
        choice.advance()
        found += choice.take_log_probabilities()
    row.hypotheses, row.finish = (Hypothesis(tuple(tokens), Finish.STOP),), Finish.STOP
    choice.advance()
    assert [*found, *choice.take_log_probabilities()] == [TokenLogProbability(A, None), *row.log_probabilities]
