"""ELMo: trained on a tiny language in which a word has two senses, exported and served in process."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Encoding

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding.text_runner import TextRow
from triptych_serving.models.text.task import NO_PLACES
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Item
from triptych_training.checkpoints.encoder import load_elmo
from triptych_training.loop.recipe import ElmoRecipe
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.tasks.elmo import train_elmo

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
    for name, count in (("train", 150), ("valid", 20)):
        lines = [line for seed, sense in enumerate(SENSES) for line in sentences(sense, count, seed)]
        Random(1).shuffle(lines)
        (folder / f"{name}.txt").write_text("\n\n".join(lines) + "\n")
    options = {"epochs": 12, "validate_every": 12, "batch_tokens": 256, "sequence_length": 32, "learning_rate": 1e-2}
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
        tokenizer = load_elmo(run / "model").tokenizer
        banks = {sense: np.stack([bank_of(model, tokenizer.encode(text)) for text in texts[sense]]) for sense in SENSES}
        whole = {sense: np.array([one.values for one in model.run(EMBEDDING_TASK, texts[sense])]) for sense in SENSES}
    finally:
        model.close()
    for vectors in (banks, whole):
        units = {sense: each / np.linalg.norm(each, axis=1, keepdims=True) for sense, each in vectors.items()}
        for sense, other in (("river", "money"), ("money", "river")):
            within = ((units[sense] @ units[sense].T).sum(1) - 1) / (len(units[sense]) - 1)  # mean cosine with the others
            assert (within > (units[sense] @ units[other].T).mean(1) + 0.05).all()


def bank_of(model: TextModel, encoding: Encoding) -> NDArray[np.float32]:
    """The served vector of the word."""
    ids = np.array(encoding.ids, np.int32)
    item = Item(TextRow(ids, np.zeros_like(ids), ("states",), NO_PLACES), len(ids))
    run_rows(model.engine, [item])
    states: NDArray[np.float32] = item.result["states"]
    return states[encoding.tokens.index("bank")]
