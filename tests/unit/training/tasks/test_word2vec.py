"""Training of Word2Vec, from text to checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest

from triptych_training.checkpoints.encoder import load_word_vectors
from triptych_training.data.words import WordWindows
from triptych_training.loop.recipe import WordRecipe
from triptych_training.tasks.word2vec import train_word2vec

from ..toy_text import write_documents


@pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
def test_the_loss_falls_and_the_checkpoint_has_the_input_vectors(tmp_path: Path, architecture: str) -> None:
    path = write_documents(tmp_path / "train.txt", repeat=24)
    recipe = WordRecipe(
        train=(path,), valid=(path,), architecture=architecture, batch_words=64, epochs=6, subsample=0, learning_rate=5e-2,
        precision="fp32", devices="1",
    )  # fmt: skip
    checkpoint = load_word_vectors(train_word2vec(recipe, 8, tmp_path / "run"))
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [record["valid_loss"] for record in records if record["kind"] == "epoch"]
    assert losses[-1] < 0.9 * losses[0]
    assert checkpoint.model.config.model_dim == 8
    assert checkpoint.model.config.vocabulary_size == checkpoint.tokenizer.get_vocab_size()


def test_windows_stay_within_their_sentence() -> None:
    windows = WordWindows(np.array([1, 2, 3, 4]), np.array([0, 0, 1, 1]), 1, cbow=True)
    around, middle = windows.examples(np.arange(4), np.random.default_rng(0))
    assert middle.tolist() == [[1], [2], [3], [4]]
    assert around.tolist() == [[0, 2], [1, 0], [0, 4], [3, 0]]
