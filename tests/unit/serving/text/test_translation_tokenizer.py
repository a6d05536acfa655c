"""Text to ids and back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from triptych_serving.bundle.manifest import Framing
from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.text.translation_tokenizer import TextPieces, TranslationTokenizer
from triptych_serving.text.validation import InputNames, SentenceNames
from triptych_text.steps import finish

from ....fixtures.toy import BUNDLE, SOURCE, TARGET, TARGETS

SPECIAL = range(4)
END = 2


def test_text_survives_the_round_trip(codec: TranslationTokenizer) -> None:
    rows = codec.encode(TARGETS)
    assert all(row[-1] == END for row in rows)
    assert codec.decode([row[:-1] for row in rows]) == TARGETS


@pytest.mark.parametrize("text", ["</s>", "a </s> b", "<pad>", "<s>", "<unk>", "</s></s>"])
def test_special_tokens_in_a_text_are_text(codec: TranslationTokenizer, text: str) -> None:
    [ids] = codec.encode([text])
    assert ids[-1] == END
    assert not set(ids[:-1]) & set(SPECIAL)
    assert codec.decode([ids[:-1]]) == [text]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *[(text, "the text is empty") for text in ("", " ", "\n\t", "\u3000")],
        (" ".join("1" * 32), "65 tokens are too long, the model takes at most 64 tokens"),
        ("a" * 10_000_000, "10,000,000 characters are too long"),
        ("a \udcff b", "the text is not Unicode"),
    ],
    ids=lambda value: ascii(value[:12]),
)
def test_a_bad_text_is_rejected_with_its_index(codec: TranslationTokenizer, text: str, fault: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"^contents\[1\]: {fault}"):
        codec.encode([SOURCE, text])


def test_a_malformed_tokenizer_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match="not a tokenizer"):
        TranslationTokenizer(tmp_path / "tokenizer.json", 64)


def test_sentences_are_named_by_their_text(codec: TranslationTokenizer) -> None:
    names = SentenceNames(owners=[3, 7])
    message = r"contents\[7\]: 64 tokens are too long for one sentence, .* at most 64 tokens; it begins '1 1 1"
    assert len(codec.encode([SOURCE, " ".join("1" * 31)], names)[1]) == 63
    with pytest.raises(InvalidInputError, match=message.replace("64 tokens are", "65 tokens are")):
        codec.encode([SOURCE, " ".join("1" * 32)], names)


FRAMING = Framing("Bitte: ", (7, 8), (9,), (5,))


def test_a_frame_surrounds_a_text(codec: TranslationTokenizer) -> None:
    [source, again] = finish(codec.encode_source_steps([SOURCE, TARGET], FRAMING))
    [own, with_text] = codec.encode([SOURCE, f"Bitte: {SOURCE}"])
    assert source.ids == [7, 8, *with_text, 9]
    assert (len(source), source.after) == (len(own), 1)
    assert source.ids[source.before : -1] == own
    assert again.ids[: again.before] == source.ids[: source.before]


@pytest.mark.parametrize("text", [" a", "\u3000a"])
def test_a_text_behind_a_frames_own_has_a_token_at_least(codec: TranslationTokenizer, text: str) -> None:
    framing = Framing("Bitte, bitte: ")
    [source] = finish(codec.encode_source_steps([text], framing))
    assert len(source) >= 2
    with pytest.raises(InvalidInputError, match="the text is empty"):
        finish(codec.encode_source_steps(["\n"], framing))


def test_fits_agrees_with_encoding(codec: TranslationTokenizer) -> None:
    for framing in (FRAMING, Framing(before=(7,)), Framing("Bitte: ")):
        for count in range(20, 33):
            text = " ".join("1" * count)
            if codec.fits(text, framing):
                assert len(finish(codec.encode_source_steps([text], framing))[0].ids) <= 64
            else:
                with pytest.raises(InvalidInputError, match=f"{2 * count + 1} tokens are too long"):
                    finish(codec.encode_source_steps([text], framing))


def test_fits_allows_for_expanding_normalizers(tmp_path: Path) -> None:
    """One character of three bytes that becomes eighteen."""
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "ص": 1}, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    codec = TranslationTokenizer(tmp_path / "tokenizer.json", 12)
    assert len(codec._tokenizer.encode("\ufdfa")) == 18
    assert not codec.fits("\ufdfa")
    assert codec.fits("a b c d")


def test_a_prefix_has_no_end_of_sentence(codec: TranslationTokenizer) -> None:
    [whole], [prefix, blank] = codec.encode([TARGET]), finish(codec.encode_prefix_steps([TARGET, " "], 15))
    assert (prefix, blank) == (tuple(whole[:-1]), ())
    message = r"options.target_prefix\[1\]: 14 tokens are too long, they must be less than max_length, which is 14"
    with pytest.raises(InvalidInputError, match=message):
        finish(codec.encode_prefix_steps(["", TARGET], 14))


def test_targets_have_a_limit_of_their_own() -> None:
    codec = TranslationTokenizer(BUNDLE / "tokenizer.json", 64, 5)
    codec.encode([SOURCE])
    with pytest.raises(
        InvalidInputError, match=r"pairs\[0\]\.target: 15 tokens are too long, the model takes at most 5 tokens"
    ):
        finish(codec.encode_targets([TARGET], InputNames("pairs", ("target",))))


def pieces_of(codec: TranslationTokenizer, ids: list[int]) -> list[str]:
    """Return the pieces that a stream sends while a row grows, and at its end."""
    pieces = TextPieces()
    grown = [pieces.advance(codec.decode_stable(ids[:length])) for length in range(1, len(ids) + 1)]
    return [*grown, pieces.advance(codec.decode([ids])[0])]


@pytest.mark.parametrize("text", [TARGET, "Äpfel 🙂🙂 für müde Füße", "日本語", "क्षि", "a  b", "e\u0301"])
def test_pieces_joined_are_the_text(codec: TranslationTokenizer, text: str) -> None:
    [ids] = codec.encode([text])
    pieces = pieces_of(codec, ids[:-1])
    assert "".join(pieces) == codec.decode([ids[:-1]])[0]
    assert "\ufffd" not in "".join(pieces)


@given(ids=st.lists(st.integers(3, 299), min_size=1, max_size=40))
def test_pieces_of_random_tokens_make_the_text(ids: list[int]) -> None:
    codec = TranslationTokenizer(BUNDLE / "tokenizer.json", 64)
    assert "".join(pieces_of(codec, ids)) == codec.decode([ids])[0]


def test_a_shrinking_text_repeats_nothing() -> None:
    pieces = TextPieces()
    assert [pieces.advance(text) for text in ("Der", "Der Mann", "Der", "Der Mann s")] == ["Der", " Mann", "", " s"]


def metaspace(folder: Path) -> TranslationTokenizer:
    """A tokenizer in the style of SentencePiece: "▁" begins a word, and single bytes stand for what it has no piece for."""
    pieces = ["<unk>", "▁", "▁Der", "▁M", "ann", "s", ".", "▁?", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token="<unk>"))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.save(str(folder / "tokenizer.json"))
    return TranslationTokenizer(folder / "tokenizer.json", 64)


def ids_of(text: str) -> list[int]:
    """Every byte a token of its own."""
    return [8 + byte for byte in text.encode()]


@pytest.mark.parametrize("ids", [[2, 3, 4, 6], [2, 1, 4], [2, *ids_of(" é🙂"), 4], ids_of("日本"), [2, 1], [1, 1, 2]])
def test_pieces_of_other_tokenizers(tmp_path: Path, ids: list[int]) -> None:
    codec = metaspace(tmp_path)
    assert "".join(pieces_of(codec, ids)) == codec.decode([ids])[0]


@given(ids=st.lists(st.sampled_from([1, 2, 3, 4, 6, 7, *ids_of("a €🙂"), 8 + 0xC3, 8 + 0xFF]), min_size=1, max_size=20))
def test_an_invalid_byte_does_not_break_a_stream(tmp_path_factory: pytest.TempPathFactory, ids: list[int]) -> None:
    codec = metaspace(tmp_path_factory.getbasetemp())
    whole = codec.decode([ids])[0]
    sent = ""
    for piece in pieces_of(codec, ids):
        sent += piece
        assert whole.startswith(sent)
    assert sent == whole
