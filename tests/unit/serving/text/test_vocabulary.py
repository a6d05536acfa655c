"""Tokens as bytes: what they decode to, kind of tokenizer by kind."""

import pytest
from tokenizers import Tokenizer, decoders, models

from triptych_serving.text.tokenizers import read_tokenizer
from triptych_serving.text.vocabulary import Vocabulary

from ....fixtures.toy import BUNDLE


def make_tokenizer(pieces: list[str], decoder: decoders.Decoder | None) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token=pieces[0]))
    tokenizer.decoder = decoder
    return tokenizer


LLAMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
GEMMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
TOKENIZERS = {
    "bytes": (make_tokenizer(["ĠH", "Ã", "¤", "us", "er", "Ġ,", "ĠĊ"], decoders.ByteLevel()), " H\xe4user ,"),
    "metaspace": (make_tokenizer(["▁H", "äus", "er", "▁und", "▁", "!"], decoders.Metaspace()), " Häuser und !"),
    "fallback": (make_tokenizer(["▁H", "<0xC3>", "<0xA4>", "us", "▁er"], LLAMA), " Häus er"),
    "space kept": (make_tokenizer(["▁H", "<0xC3>", "<0xA4>", "us", "▁er"], GEMMA), " Häus er"),
    "metaspace kept": (make_tokenizer(["▁H", "of"], decoders.Metaspace(prepend_scheme="never")), " Hof"),
    "wordpiece": (make_tokenizer(["Hä", "##us", "##er", ",", "und", "."], decoders.WordPiece()), " Häuser, und."),
    "end of word": (make_tokenizer(["Hä", "us</w>", "und</w>", "er"], decoders.BPEDecoder()), "Häus und er"),
    "words": (make_tokenizer(["Häuser", "und", "Hof"], None), " Häuser und Hof"),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_surfaces_joined_are_the_text(kind: str) -> None:
    tokenizer, expected = TOKENIZERS[kind]
    count = tokenizer.get_vocab_size() - (1 if kind == "bytes" else 0)
    whole = Vocabulary.of(tokenizer).tail(range(count), 100)
    assert whole is not None
    assert Vocabulary.of(tokenizer).strips == (kind not in ("bytes", "space kept", "metaspace kept"))
    assert whole.decode() == expected.removeprefix(" ")
    text = tokenizer.decode(list(range(count)))
    assert text == whole.decode() if Vocabulary.of(tokenizer).strips else text == " " + whole.decode()


def test_a_tail_is_the_bytes_of_the_last_tokens() -> None:
    vocabulary = Vocabulary([b" one", b" two", b" three"])
    tails = {length: vocabulary.tail([0, 1, 2], length) for length in (3, 8, 100)}
    assert tails == {3: b" three", 8: b" two three", 100: b"one two three"}
    tokenizer = make_tokenizer(["a", "b"], decoders.ByteLevel())
    tokenizer.add_tokens(["Ġ</x>"])
    assert Vocabulary.of(tokenizer).tail([0, 2], 10) == "aĠ</x>".encode(), "added tokens stand for themselves"
    toy = Vocabulary.of(read_tokenizer(BUNDLE / "tokenizer.json"))
    assert toy.tail([1, 0, 2, 3, 100_000], 10) is None, "special tokens and unknown ids have no bytes"


@pytest.mark.parametrize(
    ("text", "within", "first", "after"),
    [
        ("b", [0, 1, 2, 4], [0, 1, 2, 4], []),
        (" b", [4], [], [(b" ", [1, 2])]),
        ("ab", [0], [0], [(b"a", [1, 2])]),
        ("bab", [], [], [(b"b", [0]), (b"ba", [1, 2])]),
        ("cbb", [], [], [(b"c", [2]), (b"cb", [1, 2])]),
        ("x", [], [], []),
    ],
)
def test_a_pattern_names_the_tokens_that_complete_a_text(
    text: str, within: list[int], first: list[int], after: list[tuple[bytes, list[int]]]
) -> None:
    pattern = Vocabulary([b"ab", b"b", b"bb", b"a", b" b", b""]).pattern(text)
    assert pattern.within.tolist() == within
    assert pattern.within_first.tolist() == first
    assert [(head, ids.tolist()) for head, ids in pattern.after] == after
