"""Text to ids and back."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.text import Pieces, TextCodec

from ...fixtures.toy import BUNDLE, SOURCE, TARGET, TARGETS

SPECIAL = range(4)
END = 2


def test_text_survives_the_round_trip(codec: TextCodec) -> None:
    rows = codec.encode(TARGETS)
    assert all(row[-1] == END for row in rows)
    assert codec.decode([row[:-1] for row in rows]) == TARGETS


@pytest.mark.parametrize("text", ["</s>", "a </s> b", "<pad>", "<s>", "<unk>", "</s></s>"])
def test_special_tokens_in_a_text_are_text(codec: TextCodec, text: str) -> None:
    [ids] = codec.encode([text])
    assert ids[-1] == END
    assert not set(ids[:-1]) & set(SPECIAL)
    assert codec.decode([ids[:-1]]) == [text]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_an_empty_text_is_refused_with_its_index(codec: TextCodec, text: str) -> None:
    with pytest.raises(InvalidInputError, match="the text is empty") as error:
        codec.encode([SOURCE, text])
    assert error.value.field == "contents[1]"


def test_a_long_text_is_refused_with_its_tokens(codec: TextCodec) -> None:
    with pytest.raises(InvalidInputError, match=r"contents\[1\]: 65 tokens are too long, the model takes at most 64 tokens"):
        codec.encode([SOURCE, " ".join("1" * 32)])


def test_the_longest_text_is_accepted(codec: TextCodec) -> None:
    [ids] = codec.encode([" ".join("1" * 31) + "1"])
    assert len(ids) == 64


def test_an_endless_text_is_refused_without_tokenizing_it(codec: TextCodec) -> None:
    with pytest.raises(InvalidInputError, match=r"contents\[0\]: 10,000,000 characters are too long"):
        codec.encode(["a" * 10_000_000])


def test_a_lone_surrogate_is_refused_with_its_index(codec: TextCodec) -> None:
    with pytest.raises(InvalidInputError, match="not Unicode") as error:
        codec.encode([SOURCE, "a \udcff b"])
    assert error.value.field == "contents[1]"


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ufeffa", "🙂", "\u202eabc", "क्षि", "\ufffd", "a\r\nb"])
def test_odd_characters_are_text(codec: TextCodec, text: str) -> None:
    [ids] = codec.encode([text])
    assert codec.decode([ids[:-1]]) == [text]


def test_what_is_no_tokenizer_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match="not a tokenizer"):
        TextCodec(tmp_path / "tokenizer.json", 64)


def test_two_codecs_do_not_share_their_limits() -> None:
    path = BUNDLE / "tokenizer.json"
    short, long = TextCodec(path, 2), TextCodec(path, 64)
    long.encode([SOURCE])
    with pytest.raises(InvalidInputError):
        short.encode([SOURCE])


def pieces_of(codec: TextCodec, ids: list[int]) -> list[str]:
    """What a stream sends while a row grows, and at its end."""
    pieces = Pieces()
    grown = [pieces.advance(codec.decode_stable(ids[:length])) for length in range(1, len(ids) + 1)]
    return [*grown, pieces.advance(codec.decode([ids])[0])]


@pytest.mark.parametrize("text", [TARGET, "Äpfel 🙂🙂 für müde Füße", "日本語", "क्षि", "a  b", "e\u0301"])
def test_pieces_joined_are_the_text(codec: TextCodec, text: str) -> None:
    [ids] = codec.encode([text])
    pieces = pieces_of(codec, ids[:-1])
    assert "".join(pieces) == codec.decode([ids[:-1]])[0]
    assert "\ufffd" not in "".join(pieces)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ids=st.lists(st.integers(3, 299), min_size=1, max_size=40))
def test_pieces_of_any_tokens_are_its_text(ids: list[int]) -> None:
    codec = TextCodec(BUNDLE / "tokenizer.json", 64)
    assert "".join(pieces_of(codec, ids)) == codec.decode([ids])[0]


def test_a_text_that_shrinks_sends_nothing_twice() -> None:
    pieces = Pieces()
    assert [pieces.advance(text) for text in ("Der", "Der Mann", "Der", "Der Mann s")] == ["Der", " Mann", "", " s"]
