"""Fine-tuning of every head, from files to checkpoint."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych_training.checkpoints.encoder import load_bert_checkpoint
from triptych_training.errors import RecipeError
from triptych_training.loop.recipe import FinetuningRecipe
from triptych_training.tasks.finetuning import finetune

from ..runs import assert_resumed, records
from ..toy_text import (
    ANIMALS,
    DOCUMENTS,
    SHAPE,
    TOKENIZER,
    make_bert,
    write,
    write_encoder,
    write_labelled,
    write_questions,
    write_words,
)

WRITERS: dict[str, tuple[str, Callable[[Path, int], str]]] = {
    "text-classification": ("train.tsv", write_labelled),
    "token-classification": ("train.conll", write_words),
    "question-answering": ("train.json", write_questions),
}
METRICS = {
    "text-classification": {"accuracy"},
    "token-classification": {"accuracy", "f1"},
    "question-answering": {"exact_match", "f1"},
}


def make_recipe(folder: Path, head: str, **changes: Any) -> FinetuningRecipe:
    name, writer = WRITERS[head]
    repeat = 20 if head == "question-answering" else 40
    recipe = FinetuningRecipe(
        head=head,
        encoder=write_encoder(folder / "encoder"),
        train=(writer(folder / name, repeat),),
        valid=(writer(folder / f"valid-{name}", 1),),
        stride=4,
        batch_tokens=200,
        dropout=0.0,
        epochs=2,
        learning_rate=1e-2,
        warmup_steps=4,
        weight_decay=0.0,
        save_steps=5,
        precision="fp32",
        devices="1",
    )
    return replace(recipe, **changes)


@pytest.mark.parametrize(
    ("head", "labels", "pairs", "sample"),
    [
        ("text-classification", ("meat", "plants"), False, "the cat eats fish"),
        ("token-classification", ("B-ANIMAL", "B-FOOD", "O"), False, "the cat eats fish"),
        ("question-answering", (), True, ("what eats the cat", " ".join(DOCUMENTS[0]))),
    ],
)
def test_a_small_task_is_learnt_and_the_result_is_a_checkpoint_of_its_head(
    tmp_path: Path, head: str, labels: tuple[str, ...], pairs: bool, sample: str | tuple[str, str]
) -> None:
    finetune(make_recipe(tmp_path, head), tmp_path / "run")
    last = records(tmp_path / "run")[-1]
    assert last["kind"] == "final"
    for name in METRICS[head]:
        assert last[f"valid_{name}"] > 0.9, name
    checkpoint = load_bert_checkpoint(tmp_path / "run/model")
    assert (checkpoint.head, checkpoint.labels, checkpoint.pairs) == (head, labels, pairs)
    assert checkpoint.samples[0] == sample
    assert len(checkpoint.samples) >= len(ANIMALS)
    assert checkpoint.provenance["metrics"].keys() > {"loss", *METRICS[head]}
    assert checkpoint.tokenizer.get_vocab() == TOKENIZER.get_vocab()


def test_training_starts_from_the_weights_of_an_encoder_or_a_fine_tuned_model(tmp_path: Path) -> None:
    encoder = make_bert()
    recipe = make_recipe(tmp_path, "token-classification", max_steps=1, learning_rate=1e-9)
    write_encoder(tmp_path / "encoder", encoder)
    model = load_bert_checkpoint(finetune(recipe, tmp_path / "run")).model
    for (name, tensor), expected in zip(model.bert.state_dict().items(), encoder.bert.state_dict().values(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6, msg=name)
    first = finetune(make_recipe(tmp_path, "text-classification", max_steps=1), tmp_path / "first")
    second = finetune(make_recipe(tmp_path, "token-classification", encoder=str(first), max_steps=1), tmp_path / "second")
    model = load_bert_checkpoint(second).model
    assert model.config == SHAPE
    assert load_bert_checkpoint(second).head == "token-classification"


@pytest.mark.full
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, "text-classification", dropout=0.1, ema_decay=0.7, max_steps=12)
    finetune(recipe, tmp_path / "whole")
    assert_resumed(partial(finetune, recipe), tmp_path / "run", tmp_path / "whole", "_step", 9)  # killed in the second epoch


def test_inputs_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    train = write(tmp_path / "a.tsv", "the cat\tyes\nthe cow\tno\nthe cat eats fish\tno\n")
    recipe = make_recipe(tmp_path, "text-classification", train=(train,), valid=(train,), max_length=5, max_steps=1)
    finetune(recipe, tmp_path / "run")
    assert [r for r in records(tmp_path / "run") if r["kind"] == "note"] == [
        {"kind": "note", "step": 0, "inputs_left_out": 1, "longer_than_tokens": 5},
        {"kind": "note", "step": 0, "valid_inputs_left_out": 1, "longer_than_tokens": 5},
    ]


def test_the_labels_are_named_so_that_a_heading_among_them_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows, said in (
        ("the cat\tyes\nthe cow\tno\ntext\tlabel\n", "3 inputs, 3 labels (label, no, yes), at most 1 steps"),
        ("".join(f"the cat\t{number}\n" for number in range(12)), "12 labels (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, ...)"),
    ):
        train = write(tmp_path / "a.tsv", rows)
        recipe = make_recipe(tmp_path, "text-classification", train=(train,), valid=(train,), max_steps=1)
        finetune(recipe, tmp_path / f"run{len(rows)}")
        assert said in capsys.readouterr().err


def test_a_batch_of_words_without_tokens_changes_nothing(tmp_path: Path) -> None:
    train = write(tmp_path / "a.conll", "\u200b O\n\u200b B-X\n")
    recipe = make_recipe(tmp_path, "token-classification", train=(train,), valid=(train,), max_steps=1)
    finetune(recipe, tmp_path / "run")
    assert records(tmp_path / "run")[-1]["valid_words"] == 0


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (49, "max_length: 49 is above the encoder's max_positions 48"),
        (3, "max_length: no input of the train files has at most 3 tokens"),
    ],
)
def test_an_unusable_length_is_rejected(tmp_path: Path, limit: int, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        finetune(make_recipe(tmp_path, "text-classification", max_length=limit), tmp_path / "run")
