"""Byte-level BPE: any text can be encoded and restored."""

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from triptych_training.data.tokenizer import SPECIAL_TOKENS, load_tokenizer, save_tokenizer, train_tokenizer
from triptych_training.errors import CheckpointError

from ..toy import PAIRS

TEXTS = [text for pair in PAIRS for text in pair] + [f"In {year} a café opened." for year in (1999, 2000, 2019, 2024) * 3]
TOKENIZER = train_tokenizer(TEXTS, 320)
LOOKALIKES = st.sampled_from([*SPECIAL_TOKENS, " ", "  ", "\n", "\t", "é", "e\u0301", "日本", "\u200b", "7", "42", "👩‍👩‍👧"])
ANY_TEXT = st.one_of(st.text(), st.lists(st.one_of(LOOKALIKES, st.text(max_size=3))).map("".join))


@given(ANY_TEXT)
def test_any_text_is_restored_and_never_becomes_a_special_token(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == unicodedata.normalize("NFC", text)
    *ids, end = TOKENIZER.encode(text).ids
    assert end == SPECIAL_TOKENS.index("</s>")
    assert all(token >= len(SPECIAL_TOKENS) for token in ids)


def test_a_trained_vocabulary() -> None:
    assert [TOKENIZER.token_to_id(token) for token in ("<pad>", "<s>", "</s>", "<unk>")] == [0, 1, 2, 3]
    assert not [piece for piece in TOKENIZER.get_vocab() if len(re.findall("[0-9]", piece)) > 1]
    assert len(TOKENIZER.encode("2024").ids) > len("2024")
    assert train_tokenizer(TEXTS, 320).to_str() == TOKENIZER.to_str()
    assert TOKENIZER.get_vocab_size() <= 320


def test_a_stored_tokenizer_encodes_alike(tmp_path: Path) -> None:
    save_tokenizer(TOKENIZER, tmp_path / "tokenizer.json")
    loaded: Tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    text = "one </s> café 2024"
    assert loaded.encode(text).ids == TOKENIZER.encode(text).ids
    assert loaded.decode(loaded.encode(text).ids) == text
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("content", [None, "", "{}"], ids=["missing", "empty", "other JSON"])
def test_a_file_that_is_not_a_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=rf"{path}: not a tokenizer"):
        load_tokenizer(path)
