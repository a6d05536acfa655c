"""Training of Word2Vec, from text to checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from triptych_training.checkpoints.encoder import load_word_vectors
from triptych_training.data.documents import Documents
from triptych_training.data.words import BLOCK, WordBlocks, keep_shares
from triptych_training.errors import CorpusError
from triptych_training.loop.recipe import WordRecipe
from triptych_training.models.word2vec import Word2Vec, Word2VecConfig
from triptych_training.tasks.word2vec import train_word2vec

from ..runs import records
from ..toy_text import write, write_documents


@pytest.mark.parametrize(
    ("architecture", "optimizer", "rate", "clip_norm"),
    [("skip-gram", "sgd", 0.05, 0), ("cbow", "adam", 6e-2, 1)],
)
def test_the_loss_falls_and_the_checkpoint_has_the_input_vectors(
    tmp_path: Path, architecture: str, optimizer: str, rate: float, clip_norm: float
) -> None:
    path = write_documents(tmp_path / "train.txt", repeat=12)
    recipe = WordRecipe(
        train=(path,), valid=(path,), architecture=architecture, epochs=4, subsample=0, precision="fp32",
        devices="1", optimizer=optimizer, learning_rate=rate, clip_norm=clip_norm,
    )  # fmt: skip
    checkpoint = load_word_vectors(train_word2vec(recipe, 8, tmp_path / "run"))
    losses = [record["valid_loss"] for record in records(tmp_path / "run") if record["kind"] == "epoch"]
    assert losses[-1] < 0.9 * losses[0]
    assert checkpoint.model.config.model_dim == 8
    assert checkpoint.model.config.vocabulary_size == checkpoint.tokenizer.get_vocab_size()


def test_a_training_from_a_checkpoint_has_its_words(tmp_path: Path) -> None:
    known = write(tmp_path / "known.txt", "one two three four\n" * 40)
    other = write(tmp_path / "other.txt", "four four one one four unknown\n" * 40)
    options: dict[str, Any] = {"subsample": 0, "min_count": 1, "max_steps": 2, "precision": "fp32", "devices": "1"}
    options["weight_decay"] = 0.1  # the gradients of tables are sparse, and do not decay
    first = train_word2vec(WordRecipe(train=(known,), valid=(known,), **options), 8, tmp_path / "first")
    recipe = WordRecipe(train=(other,), valid=(other,), initial=str(first), **options)
    second = load_word_vectors(train_word2vec(recipe, 8, tmp_path / "second"))
    assert second.tokenizer.get_vocab() == load_word_vectors(first).tokenizer.get_vocab()


def test_validation_texts_without_a_known_word_are_found_before_the_training(tmp_path: Path) -> None:
    known, other = write(tmp_path / "known.txt", "one two\n" * 40), write(tmp_path / "other.txt", "three four\n")
    recipe = WordRecipe(train=(known,), valid=(other,), subsample=0, devices="1")
    with pytest.raises(CorpusError, match="valid: no known word is left; add text, lower min_count, or raise subsample"):
        train_word2vec(recipe, 8, tmp_path / "run")
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.parametrize("cbow", [False, True])
def test_the_loss_is_that_of_every_word_and_its_negative_samples(cbow: bool) -> None:
    torch.manual_seed(0)
    model = Word2Vec(Word2VecConfig(9, 4), negatives=2, cbow=cbow)
    torch.nn.init.normal_(model.inputs.weight)
    torch.nn.init.normal_(model.outputs.weight)
    blocks = WordBlocks.of(documents([1, 2, 3], [4, 5]), np.ones(9), np.random.default_rng(0), 2)
    ids, around = (torch.from_numpy(array) for array in blocks.examples(np.arange(1), np.random.default_rng(0)))
    expected = torch.zeros(())
    for place in range(5):
        found = ids[0, around[0, place]]
        word = ids[0, place + 2 : place + 3]
        given, predicted = ([found], word) if cbow else ([word], found)
        h = model.inputs(given[0]).mean(0)
        expected -= logsigmoid(model.outputs(predicted) @ h).sum()
        expected -= len(predicted) * logsigmoid(-model.outputs(torch.tensor([6, 7])) @ h).sum()
    assert torch.allclose(model(ids, around, torch.tensor([6, 7, 6, 7])), expected, atol=1e-5)


def test_windows_stay_within_their_sentence() -> None:
    blocks = WordBlocks.of(documents([1, 2, 0, 3], [4] * BLOCK), np.ones(9), np.random.default_rng(0), 1)
    ids, around = blocks.examples(np.arange(2), np.random.default_rng(0))
    assert (len(blocks), blocks.words(np.arange(2)), blocks.words(np.array([1]))) == (2, BLOCK + 3, 3)
    pairs = [(int(ids[0, middle + 1]), int(ids[0, other])) for middle, other in zip(*around[0].nonzero(), strict=True)]
    assert pairs[:5] == [(1, 2), (2, 1), (2, 3), (3, 2), (4, 4)]
    assert around[1].sum() == 5  # three words of the last sentence, the first with one in the block before


def test_rare_words_stay_in_the_text_and_frequent_ones_mostly_leave() -> None:
    shares = keep_shares(np.array([0, 1, 99_999]), 1e-3)
    assert shares.round(4).tolist() == [1, 1, 0.0326]


def documents(*sentences: list[int]) -> Documents:
    offsets = np.cumsum([0, *map(len, sentences)])
    return Documents(np.concatenate(sentences).astype(np.int32), offsets, np.array([0, len(sentences)]))
