"""Pre-training of BERT, from text to checkpoint."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from triptych_training.checkpoints.encoder import load_bert_checkpoint
from triptych_training.data.documents import encode_documents
from triptych_training.data.tokenizer import save_tokenizer, train_tokenizer
from triptych_training.errors import CorpusError, RecipeError
from triptych_training.loop.recipe import PretrainingRecipe
from triptych_training.models.bert import BertForPretraining
from triptych_training.tasks.pretraining import PretrainingTask, TextCorpus, draw_valid, fit_shape, pretrain

from ..runs import assert_resumed, files, records
from ..toy_text import DOCUMENTS, SHAPE, TOKENIZER, write, write_documents

Finished = tuple[PretrainingRecipe, Path]
STEPS = 22  # of `finished`, which ends in its second epoch
DROPPING = replace(SHAPE, dropout=0.1)


def make_recipe(folder: Path, **changes: Any) -> PretrainingRecipe:
    save_tokenizer(TOKENIZER, folder / "given.json")
    recipe = PretrainingRecipe(
        train=(write_documents(folder / "train.txt", repeat=12),),
        valid=(write_documents(folder / "valid.txt"),),
        tokenizer=str(folder / "given.json"),
        sequence_length=32,
        batch_tokens=160,
        epochs=2,
        max_steps=STEPS,
        optimizer="muon",
        learning_rate=2e-2,
        schedule="linear",
        warmup_steps=4,
        average=1,
        ema_decay=0.8,
        save_steps=8,
        precision="fp32",
        devices="1",
    )
    return replace(recipe, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    recipe = make_recipe(folder)
    pretrain(recipe, DROPPING, folder / "run")
    return recipe, folder / "run"


def make_task(folder: Path, **changes: Any) -> PretrainingTask:
    recipe = make_recipe(folder, **changes)
    documents = encode_documents(TOKENIZER, iter(DOCUMENTS))
    torch.manual_seed(1)
    return PretrainingTask(recipe, fit_shape(SHAPE, TOKENIZER), TOKENIZER, TextCorpus(documents, documents, ()))


@pytest.mark.full
def test_a_small_corpus_is_learnt(tmp_path: Path) -> None:
    train = write_documents(tmp_path / "long.txt", repeat=130)
    changes = {"train": (train,), "next_sentence": False, "batch_tokens": 320, "max_steps": 100, "learning_rate": 3e-2}
    model = pretrain(make_recipe(tmp_path, **changes), replace(SHAPE, norm="pre"), tmp_path / "run")
    last = records(tmp_path / "run")[-1]
    assert last["valid_top1"] > 0.9
    assert last["valid_loss"] < 0.4
    assert "valid_next_sentence" not in last
    assert not any("next_sentence" in name for name in load_bert_checkpoint(model).model.state_dict())


def test_a_finished_run_has_the_documented_files_metrics_and_checkpoint(finished: Finished) -> None:
    recipe, run = finished
    checkpoint = {"config.json", "model.safetensors", "tokenizer.json"}
    epochs = {f"checkpoints/epoch-{n:04d}/{name}" for n in (1, 2) for name in checkpoint}
    model = {f"model/{name}" for name in (*checkpoint, "samples.json")}
    own = {"recipe.json", "tokenizer.json", "documents.npz", "metrics.jsonl", "loss.png", "state.pt"}
    assert files(run) == own | epochs | model
    valid = {f"valid_{name}" for name in ("loss", "perplexity", "top1", "top5", "masks", "next_sentence", "sentence_pairs")}
    lines = records(run)
    assert [r["step"] for r in lines if r["kind"] == "train"] == [5, 10, 15, 20]
    assert all(r["masks_per_second"] > 0 for r in lines if r["kind"] == "train")
    assert [r["kind"] for r in lines][-2:] == ["epoch", "final"]
    for line in lines:
        if line["kind"] != "train":
            assert valid <= line.keys()
            assert line["valid_top1"] <= line["valid_top5"] <= 1
            assert line["valid_perplexity"] == pytest.approx(np.exp(line["valid_loss"]))
    assert lines[-1]["step"] == STEPS
    first, second = (line["valid_loss"] for line in lines if line["kind"] == "epoch")
    assert second < first
    checkpoint = load_bert_checkpoint(run / "model")
    assert isinstance(checkpoint.model, BertForPretraining)
    assert checkpoint.model.next_sentence is not None
    assert checkpoint.provenance["steps"] == STEPS
    assert checkpoint.provenance["recipe"]["ema_decay"] == recipe.ema_decay
    assert {f"valid_{name}" for name in checkpoint.provenance["metrics"]} == valid
    assert checkpoint.provenance["training_tokens"] == 12 * sum(
        len(e.ids) - 2 for d in DOCUMENTS for e in TOKENIZER.encode_batch(d)
    )
    assert checkpoint.tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert checkpoint.model.config.vocabulary_size == checkpoint.tokenizer.get_vocab_size()
    texts = {text for document in DOCUMENTS for text in document}
    assert checkpoint.samples
    assert set(checkpoint.samples) <= texts
    state = torch.load(run / "state.pt", weights_only=True)
    assert state["average"]["steps"] == STEPS
    model = checkpoint.model.state_dict()
    assert all(torch.equal(model[name], tensor) for name, tensor in state["average"]["mean"].items())
    assert not torch.equal(model["masked_token.transform.weight"], state["model"]["masked_token.transform.weight"])


def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(finished: Finished, tmp_path: Path) -> None:
    recipe, whole = finished
    assert_resumed(partial(pretrain, recipe, DROPPING), tmp_path / "run", whole, "_step", 19)  # killed in the second epoch


def test_a_tokenizer_is_trained_and_the_shape_fits_it(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, max_steps=1, tokenizer="", vocabulary_size=100, lowercase=False)
    learnt = load_bert_checkpoint(pretrain(recipe, SHAPE, tmp_path / "learnt"))
    assert learnt.tokenizer.get_vocab_size() == learnt.model.config.vocabulary_size <= 100
    assert learnt.tokenizer.encode("The").ids != learnt.tokenizer.encode("the").ids
    fitted = fit_shape(replace(SHAPE, vocabulary_size=999, cls_id=7), TOKENIZER)
    assert asdict(fitted) == asdict(SHAPE)


def test_an_unusable_recipe_is_rejected(tmp_path: Path) -> None:
    save_tokenizer(train_tokenizer(["a b"], 270), tmp_path / "bpe.json")
    with pytest.raises(RecipeError) as caught:
        pretrain(make_recipe(tmp_path, tokenizer=str(tmp_path / "bpe.json")), SHAPE, tmp_path / "run")
    assert str(caught.value) == "tokenizer: lacks [PAD], [CLS], [SEP], [MASK]"
    with pytest.raises(RecipeError, match="sequence_length: 49 is above max_positions 48"):
        pretrain(make_recipe(tmp_path, sequence_length=49), SHAPE, tmp_path / "run")
    recipe = make_recipe(tmp_path, valid=(write(tmp_path / "empty.txt", "\u200b\n"),))
    with pytest.raises(CorpusError, match="valid: the files contain no tokens"):
        pretrain(recipe, SHAPE, tmp_path / "run")


@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_batch_masks_tokens_and_changes_nothing_else(tmp_path: Path, next_sentence: bool) -> None:
    task = make_task(tmp_path, next_sentence=next_sentence)
    for indices in task.plan(0):
        ids, segments, places, labels, follows = task.batch(indices, seed=3)
        assert ids.shape == segments.shape
        assert ids.numel() <= task.recipe.batch_tokens
        assert len(places) == len(labels) == task.weight(indices)
        original = ids.flatten().scatter(0, places, labels).view_as(ids)
        for row, index in enumerate(indices):
            a, b, c, d = task._rows.spans[index].tolist()
            text = task.corpus.train.ids
            expected = [SHAPE.cls_id, *text[a:b], SHAPE.sep_id, *([*text[c:d], SHAPE.sep_id] if d else [])]
            assert original[row].tolist() == [*expected, *[SHAPE.pad_id] * (ids.shape[1] - len(expected))]
            assert segments[row].tolist() == [int(b - a + 2 <= t < len(expected)) for t in range(ids.shape[1])]
        assert set(follows.tolist()) <= ({0, 1, -1} if next_sentence else {-1})
    seeds = ((0, 1), (0, 1), (0, 2), (1, 1))
    first, same, seed, epoch = ([t.tolist() for t in task.batch(task.plan(number)[0], seed)] for number, seed in seeds)
    assert first == same
    assert seed != first != epoch


def test_validation_is_the_same_for_every_batch_size_and_mask_share(tmp_path: Path) -> None:
    one, other = make_task(tmp_path), make_task(tmp_path, batch_tokens=70, mask_share=0.4)
    other.model.load_state_dict(one.model.state_dict())
    one.model.eval()
    other.model.eval()
    with torch.inference_mode():
        assert one.validate() == pytest.approx(other.validate(), rel=1e-4)
    assert draw_valid(3).random() == draw_valid(3).random() != draw_valid(4).random()


class Fixed(torch.nn.Module):
    """Model with constant logits."""

    def __init__(self, tokens: Tensor, follows: Tensor | None) -> None:
        super().__init__()
        self.logits = tokens, follows

    def forward(self, *arguments: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.logits


def test_next_sentences_have_the_same_weight_as_masks(tmp_path: Path) -> None:
    task, tokens, ids = make_task(tmp_path), torch.zeros(5, 7), torch.zeros(2, 3, dtype=torch.long)
    labels = torch.zeros(5, dtype=torch.long)
    for classes, follows, pairs in (
        (torch.zeros(2, 2), [1, -1], 1.0),
        (torch.zeros(2, 2), [-1, -1], 0.0),
        (torch.zeros(2, 2), [1, 1], 1.0),
        (None, [1, 1], 0.0),
    ):
        task.model = Fixed(tokens, classes)  # type: ignore[assignment]
        total = task.loss(ids, ids, torch.arange(5), labels, torch.tensor(follows))
        assert float(total) == pytest.approx(5 * np.log(7) + 5 * pairs * np.log(2), rel=1e-5)
