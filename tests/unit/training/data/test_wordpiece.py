"""WordPiece vocabulary of BERT: special tokens, template, unknown words."""

from pathlib import Path

import pytest

from triptych_training.data.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from triptych_training.data.wordpiece import SPECIAL_TOKENS, ordinary_ids, train_wordpiece

from ..toy_text import TEXTS, TOKENIZER


def test_special_tokens_and_pieces(tmp_path: Path) -> None:
    assert [TOKENIZER.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    encoding = TOKENIZER.encode("the cat eats")
    assert encoding.tokens == ["[CLS]", "the", "cat", "eats", "[SEP]"]
    assert encoding.type_ids == [0] * 5
    encoding = TOKENIZER.encode("the cat", "eats fish")
    assert encoding.tokens == ["[CLS]", "the", "cat", "[SEP]", "eats", "fish", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert TOKENIZER.encode("猫", add_special_tokens=False).tokens == ["[UNK]"]
    pieces = TOKENIZER.encode("cats", add_special_tokens=False).tokens
    assert pieces[0] == "cat"
    assert all(piece.startswith("##") for piece in pieces[1:])
    assert TOKENIZER.decode(TOKENIZER.encode("cats").ids) == "cats"
    learnt = train_wordpiece(TEXTS * 2, 120, lowercase=True)
    assert learnt.get_vocab_size() <= 120
    assert len({learnt.to_str(), *(train_wordpiece(TEXTS * 2, 120, lowercase=True).to_str() for _ in range(5))}) == 1
    assert train_wordpiece(TEXTS * 2, 60, lowercase=True).get_vocab_size() == 60
    save_tokenizer(learnt, tmp_path / "tokenizer.json")
    ids = load_tokenizer(tmp_path / "tokenizer.json").encode("a [SEP] b", add_special_tokens=False).ids
    assert 3 not in ids


def test_special_tokens_of_any_vocabulary_are_not_ordinary() -> None:
    assert ordinary_ids(TOKENIZER).tolist() == list(range(5, TOKENIZER.get_vocab_size()))
    foreign = train_tokenizer(["a b"], 270)  # <pad>, <s>, </s>, <unk> first
    foreign.add_special_tokens(["[MASK]", "[CLS]"])
    assert ordinary_ids(foreign).tolist() == list(range(4, foreign.get_vocab_size() - 2))


@pytest.mark.parametrize(("lowercase", "same"), [(True, True), (False, False)])
def test_lowercase_ignores_case_and_accents(lowercase: bool, same: bool) -> None:
    tokenizer = train_wordpiece([*TEXTS, "Café CAFÉ café cafe"] * 2, 200, lowercase)
    first, second = (tokenizer.encode(text).ids for text in ("Café", "cafe"))
    assert (first == second) is same
    assert 1 not in (*first, *second)
