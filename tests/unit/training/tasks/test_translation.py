"""Translation models of several directions, and their loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.data.batches import Example, pad
from triptych_training.data.languages import ModelLanguages, directed_files, find_languages, language_token
from triptych_training.data.tokenizer import train_tokenizer
from triptych_training.errors import CheckpointError, RecipeError
from triptych_training.loop.recipe import TranslationRecipe
from triptych_training.models.rnn import RnnConfig
from triptych_training.tasks.translation import sequence_batch, sequence_loss, train_translation

from ..runs import records
from ..toy import PAIRS, SHAPE, TRAINED, make_ids, make_model, make_recipe, write_pairs

THERE, BACK = [(a, b) for a, b in PAIRS], [(b, a) for a, b in PAIRS]


def several(folder: Path, **changes: Any) -> TranslationRecipe:
    there, back = write_pairs(folder / "there.tsv", THERE), write_pairs(folder / "back.tsv", BACK)
    few = write_pairs(folder / "few.tsv", THERE[::8]), write_pairs(folder / "few-back.tsv", BACK[::8])
    files = {"train": (f"en:xx={there}", f"xx:en={back}"), "valid": (f"xx:en={few[1]}", f"en:xx={few[0]}")}
    return make_recipe(folder, **{**files, "source_language": "", "target_language": "", **changes})


def test_the_tokenizer_of_another_training(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, max_steps=2, average=1)
    teacher = train_translation(recipe, TRAINED, tmp_path / "teacher")
    other = write_pairs(tmp_path / "other.tsv", [("d c b a", "b a")] * 20)
    known = replace(recipe, train=(str(other),), tokenizer=str(teacher / "tokenizer.json"))
    student = train_translation(known, TRAINED, tmp_path / "student")
    assert load_checkpoint(student).tokenizer.to_str() == load_checkpoint(teacher).tokenizer.to_str()
    tokenizer = load_checkpoint(teacher).tokenizer
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_str().replace("<pad>", "<empty>"))
    with pytest.raises(RecipeError, match=r"tokenizer: tokens 0, 1 and 2 of .* are not <pad>, <s>, </s>"):
        train_translation(replace(known, tokenizer=str(path)), TRAINED, tmp_path / "refused")
    train_translation(known, TRAINED, tmp_path / "refused", resume=True)
    with pytest.raises(RecipeError, match=r"tokenizer: the checkpoint to start from \(initial\) has one"):
        replace(known, initial=str(teacher))


def test_a_model_of_two_directions_depends_on_the_target_s_token(tmp_path: Path) -> None:
    recipe = several(tmp_path, max_steps=2, average=1)
    checkpoint = load_checkpoint(train_translation(recipe, TRAINED, tmp_path / "run"))
    tokenizer = checkpoint.tokenizer
    assert (checkpoint.source_language, checkpoint.target_language) == ("en", "xx")
    assert checkpoint.languages == ModelLanguages(("en", "xx"), {"xx": 4, "en": 5})
    assert [tokenizer.id_to_token(number) for number in (4, 5)] == ["<2xx>", "<2en>"]
    assert list(checkpoint.samples) == THERE[::8]
    assert (checkpoint.prefix("xx"), checkpoint.prefix("en")) == ([4], [5])
    final = records(tmp_path / "run")[-1]
    assert {"valid_loss", "valid_bleu", "valid_bleu_en_xx", "valid_bleu_xx_en"} < final.keys()
    assert final["valid_bleu"] == pytest.approx((final["valid_bleu_en_xx"] + final["valid_bleu_xx_en"]) / 2)
    ids, start = tokenizer.encode("one two.").ids, torch.tensor([[SHAPE.bos_id]])
    one, other = (checkpoint.model(torch.tensor([[number, *ids]]), start) for number in (4, 5))
    assert not torch.allclose(one, other, atol=1e-4)
    text = tokenizer.encode("<2xx> one").ids  # ordinary text, whatever it looks like
    assert (4 in text, tokenizer.decode(text)) == (False, "<2xx> one")


@pytest.mark.parametrize(
    ("cell", "attention"),
    [
        ("gru", "additive"),
        pytest.param("lstm", "multiplicative", marks=pytest.mark.full),
        pytest.param("gru", "none", marks=pytest.mark.full),
    ],
)
def test_a_recurrent_model_learns_and_is_read_back(cell: str, attention: str, tmp_path: Path) -> None:
    shape = RnnConfig(50, 16, 2, 2, cell, attention, teacher_forcing=0.9, truncate=2, max_positions=32)
    run = tmp_path / "run"
    checkpoint = load_checkpoint(train_translation(make_recipe(tmp_path, average=1), shape, run))
    assert checkpoint.model.config == replace(shape, vocabulary_size=checkpoint.tokenizer.get_vocab_size())
    losses = [record["valid_loss"] for record in records(run) if "valid_loss" in record]
    assert losses[-1] < losses[0]
    with pytest.raises(RecipeError, match="compile: not supported for this kind of model"):
        train_translation(make_recipe(tmp_path, compile=True), shape, tmp_path / "other")


def test_a_model_of_one_direction_has_no_language_tokens(tmp_path: Path) -> None:
    there = write_pairs(tmp_path / "there.tsv")
    recipe = several(tmp_path, train=(f"en:xx={there}",), valid=(f"en:xx={there}",), max_steps=1, average=1)
    checkpoint = load_checkpoint(train_translation(recipe, TRAINED, tmp_path / "run"))
    assert checkpoint.languages == ModelLanguages()
    assert checkpoint.prefix() == checkpoint.prefix("xx") == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": ("a",)}, "source_language, target_language: set both for a, or write en:de=a"),
        (
            {"train": ("a b:c=x",), "source_language": "e n", "target_language": "de"},
            "source_language: 'e n' is not a language code",
        ),
        ({"train": ("en:german=x",)}, "target_language: 'german' is not a language code"),
        ({"source_language": "en"}, "source_language, target_language: leave them out, en:xx="),
        ({"valid": ("de:xx=a",)}, "valid: there is no training file for de:xx"),
        ({"valid": ("xx:en=a",)}, "valid: a file is needed for the first direction, en:xx"),
    ],
)
def test_inconsistent_languages_are_rejected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        several(tmp_path, **changes)


def test_languages_and_paths_of_directions() -> None:
    assert [file.path for file in directed_files(["en:de=a=b::c"], ("", ""))] == ["a=b::c"]
    assert [file.direction for file in directed_files(["a::b"], ("en", "de"))] == [("en", "de")]
    tokenizer = train_tokenizer(["one"], 290, [language_token(code) for code in ("de", "en")])
    assert find_languages([("en", "de"), ("de", "en")], tokenizer) == ModelLanguages(("en", "de"), {"de": 4, "en": 5})
    assert find_languages([("en", "de"), ("en", "de")], tokenizer) == ModelLanguages()


def test_an_initial_vocabulary_must_have_the_languages_and_one_of_several_targets_must_be_named(tmp_path: Path) -> None:
    save_checkpoint(Checkpoint(make_model(), train_tokenizer(["one"], 290), "en", "xx"), tmp_path / "alone")
    with pytest.raises(CheckpointError, match="tokenizer: its vocabulary lacks <2xx>, <2en>"):
        train_translation(several(tmp_path, initial=str(tmp_path / "alone")), SHAPE, tmp_path / "run")
    languages = ModelLanguages(("en", "xx"), {"xx": 4, "en": 5})
    checkpoint = Checkpoint(make_model(), train_tokenizer(["one"], 290), "en", "xx", languages=languages)
    with pytest.raises(RecipeError, match="target_language: the model has several; set one of xx, en"):
        checkpoint.prefix()
    with pytest.raises(RecipeError, match="target_language: the model does not translate to 'de'; set one of xx, en"):
        checkpoint.prefix("de")


EXAMPLES = [Example(source, target) for source, target in zip(make_ids(9, 4, 6), make_ids(3, 8, 5), strict=True)]


def tensors(examples: list[Example]) -> tuple[torch.Tensor, ...]:
    source, labels = (pad([getattr(e, side) for e in examples], SHAPE.pad_id) for side in ("source", "target"))
    return sequence_batch(source, labels, SHAPE)


def loss_of(examples: list[Example], smoothing: float) -> torch.Tensor:
    return sequence_loss(make_model(), smoothing, *tensors(examples))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_batch_is_the_sum_over_its_sentences(smoothing: float) -> None:
    alone = sum(loss_of([example], smoothing).item() for example in EXAMPLES)
    assert loss_of(EXAMPLES, smoothing).item() == pytest.approx(alone, rel=1e-5)


def test_label_smoothing_mixes_in_the_mean_over_all_tokens() -> None:
    source, inputs, labels, _ = tensors(EXAMPLES[:1])
    logs = functional.log_softmax(make_model()(source, inputs)[0], dim=-1)
    hard = -logs.gather(1, labels[0][:, None]).sum().item()
    assert loss_of(EXAMPLES[:1], 0.0).item() == pytest.approx(hard, rel=1e-5)
    assert loss_of(EXAMPLES[:1], 0.1).item() == pytest.approx(0.9 * hard - 0.1 * logs.mean(-1).sum().item(), rel=1e-5)
