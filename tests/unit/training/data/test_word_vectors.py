"""Token tables that begin with the vectors of a file."""

from pathlib import Path

import pytest
import torch

from triptych_training.data.tokenizer import train_gpt_tokenizer, train_tokenizer
from triptych_training.data.word_vectors import fill_token_tables
from triptych_training.data.wordpiece import train_wordpiece
from triptych_training.errors import RecipeError
from triptych_training.models.bert import BertConfig, BertForPretraining
from triptych_training.models.gpt import Gpt, GptConfig
from triptych_training.models.rnn import Rnn, RnnConfig
from triptych_training.models.transformer import Transformer, TransformerConfig

TEXTS = ["the river and the bank", "the River bank"] * 20
VECTORS = {"the": [1.0, 0.0, 2.0, 1.0], "Bank": [0.0, -3.0, 1.0, 1.0], "unseen": [1.0, 1.0, 1.0, 1.0]}
SHAPE = {"vocabulary_size": 300, "model_dim": 4, "heads": 2, "feedforward_dim": 8}
SIDES = {"encoder_layers": 1, "decoder_layers": 1, "tie_embeddings": False}
MODELS = {
    "transformer": lambda: (
        Transformer(TransformerConfig(**SHAPE, **SIDES)),
        train_tokenizer(TEXTS, 300),
    ),
    "rnn": lambda: (Rnn(RnnConfig(vocabulary_size=300, model_dim=4)), train_tokenizer(TEXTS, 300)),
    "gpt": lambda: (Gpt(GptConfig(**SHAPE, layers=1)), train_gpt_tokenizer(TEXTS, 300)),
    "bert": lambda: (BertForPretraining(BertConfig(**SHAPE, layers=1)), train_wordpiece(TEXTS, 100, lowercase=True)),
}


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    rows = (f"{word} {' '.join(map(str, row))}" for word, row in VECTORS.items())
    (path := tmp_path / "vectors.txt").write_text("3 4\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("kind", MODELS)
def test_tokens_that_are_words_begin_with_their_vectors(kind: str, vectors: Path) -> None:
    model, tokenizer = MODELS[kind]()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = fill_token_tables(model, tokenizer, vectors)
    words = [token for token in range(tokenizer.get_vocab_size()) if tokenizer.decode([token]).strip() in ("the", "bank")]
    assert found == len(words) >= 2
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed
    for name in changed:
        table = model.state_dict()[name]
        others = [token for token in range(len(table)) if token not in words]
        torch.testing.assert_close(table[others], before[name][others])
        for token in words:
            given = torch.tensor(VECTORS["the" if tokenizer.decode([token]).strip() == "the" else "Bank"])
            torch.testing.assert_close(torch.cosine_similarity(table[token], given, dim=0), torch.tensor(1.0))
        assert 0.5 < table[words].std() / before[name].std() < 2


def test_vectors_of_another_length_and_foreign_words_are_refused(vectors: Path, tmp_path: Path) -> None:
    _, tokenizer = MODELS["gpt"]()
    with pytest.raises(RecipeError, match="have 4 numbers, the model 6"):
        fill_token_tables(Gpt(GptConfig(**{**SHAPE, "model_dim": 6, "heads": 1}, layers=1)), tokenizer, vectors)
    (tmp_path / "foreign.txt").write_text("1 4\nunseen 1 2 3 4\n")
    with pytest.raises(RecipeError, match=r"no word of .*foreign\.txt is a token of the model"):
        fill_token_tables(MODELS["gpt"]()[0], tokenizer, tmp_path / "foreign.txt")
