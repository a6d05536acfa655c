"""ELMo: trained on a tiny language in which a word has two senses, exported and served in process."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_training.checkpoints.encoder import load_elmo
from triptych_training.loop.recipe import ElmoRecipe
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.tasks.language_models import train_elmo

from ..runs import records

SUBJECTS = ["the man", "the woman", "a child", "my friend"]
SENSES = {
    "river": (["swims", "fishes", "rests"], ["green", "muddy", "steep"], ["of the river", "near the water", "by the stream"]),
    "money": (["pays", "invests", "saves"], ["rich", "local", "national"], ["with her cash", "for a loan", "at low interest"]),
}


def sentences(sense: str, count: int, seed: int) -> list[str]:
    verbs, kinds, ends = SENSES[sense]
    draw = Random(seed).choice
    return [f"{draw(SUBJECTS)} {draw(verbs)} at the {draw(kinds)} bank {draw(ends)}." for _ in range(count)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    for name, count in (("train", 150), ("valid", 16)):
        lines = [line for seed, sense in enumerate(SENSES) for line in sentences(sense, count, seed)]
        Random(1).shuffle(lines)
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    options = {"epochs": 8, "validate_every": 8, "batch_tokens": 256, "sequence_length": 32, "learning_rate": 2e-2}
    files = {"train": (str(folder / "train.txt"),), "valid": (str(folder / "valid.txt"),)}
    recipe = ElmoRecipe(**files, **options, warmup_steps=0, precision="fp32", devices="1")
    train_elmo(recipe, ElmoConfig(1, direction_dim=24, max_positions=64), folder / "run")
    return folder / "run"


def test_both_directions_are_learnt_and_neither_sees_what_it_predicts(run: Path) -> None:
    [epoch] = [record for record in records(run) if record["kind"] == "epoch"]
    assert epoch["valid_perplexity"] < 4  # of 40 words
    model = load_elmo(run / "model").model
    assert isinstance(model, Elmo)
    ids = torch.tensor([[0, 5, 6, 7, 8, 9, 0]])
    other = ids.clone()
    other[0, 3] = 12
    with torch.no_grad():
        (before, back), (after, changed) = (model.bert(each)[-1, 0].chunk(2, -1) for each in (ids, other))
    assert torch.equal(before[:3], after[:3])
    assert not torch.allclose(before[3], after[3])
    assert torch.equal(back[4:], changed[4:])
    assert not torch.allclose(back[3], changed[3])


def test_the_bank_of_a_river_and_that_with_money_lie_apart(run: Path, tmp_path: Path) -> None:
    export(run / "model", ExportOptions(tmp_path, "elmo"), lambda line: None)
    bundle = open_bundle(tmp_path / "elmo/1")
    report = bundle.manifest.parity["fp32"]
    assert max(report["largest_difference"].values()) < 1e-5
    texts = {sense: sentences(sense, 6, seed=7) for sense in SENSES}
    model = TextModel("elmo", 1, bundle)
    try:
        found = {sense: model.run(EMBEDDING_TASK, texts[sense], token_vectors=True) for sense in SENSES}
        [short] = model.run(EMBEDDING_TASK, texts["river"][:1], token_vectors=True, dimensions=4, normalize=True)
    finally:
        model.close()
    banks = {sense: np.stack([*map(bank_of, texts[sense], found[sense])]) for sense in SENSES}
    whole = {sense: np.array([one.values for one in found[sense]]) for sense in SENSES}
    expected = banks["river"][0, :4] / np.linalg.norm(banks["river"][0, :4])
    assert np.allclose(bank_of(texts["river"][0], short), expected, atol=1e-5)
    for vectors in (banks, whole):
        units = {sense: each / np.linalg.norm(each, axis=1, keepdims=True) for sense, each in vectors.items()}
        for sense, other in (("river", "money"), ("money", "river")):
            within = ((units[sense] @ units[sense].T).sum(1) - 1) / (len(units[sense]) - 1)  # mean cosine with the others
            assert (within > (units[sense] @ units[other].T).mean(1) + 0.05).all()


def bank_of(text: str, found: TextEmbedding) -> NDArray[np.float32]:
    """The served vector of the word."""
    vectors = np.reshape(found.token_values, (found.token_count, len(found.values)))
    [place] = [
        number
        for number, span in enumerate(zip(found.token_starts, found.token_ends, strict=True))
        if text[slice(*span)] == "bank"
    ]
    return np.asarray(vectors[place], np.float32)
