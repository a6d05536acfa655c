"""Comparison of imported checkpoints with the models of transformers."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from triptych_export.errors import ParityError
from triptych_export.huggingface.architectures.registry import Loaded, load
from triptych_export.huggingface.folder import Folder
from triptych_export.original import compare_with_original

from ..fixtures.huggingface import small_model
from .test_huggingface_heads import EUROBERT
from .test_huggingface_images import QUICK, save
from .test_huggingface_images import build as build_images
from .test_huggingface_text import (
    ALBERT,
    BERT,
    DISTILBERT,
    ELECTRA,
    ERNIE,
    GTE,
    MODERNBERT,
    MPNET,
    NOMIC,
    PRE_ROBERTA,
    ROBERTA,
    XL,
    Family,
    build,
)
from .text_checkpoints import save_checkpoint

MODERN_HEADS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model")
TEXTS = {
    f"{family.name} {head}": (family, head)
    for family, head in [
        (BERT, "ForTokenClassification"),
        (DISTILBERT, "ForMaskedLM"),
        (ROBERTA, "ForMaskedLM"),
        (MPNET, "ForMaskedLM"),
        (ELECTRA, "ForMaskedLM"),
        (ELECTRA, "ForSequenceClassification"),
        (ALBERT, "ForSequenceClassification"),
        (ERNIE, "ForMaskedLM"),
        (PRE_ROBERTA, "ForMaskedLM"),
        (XL, "ForMaskedLM"),
        (NOMIC, "ForMaskedLM"),
        (GTE, "ForSequenceClassification"),
        *((MODERNBERT, head) for head in MODERN_HEADS),
    ]
}


@pytest.mark.parametrize("kind", ["bart", *TEXTS, *QUICK])
def test_other_weights_are_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind in TEXTS:
        family, head = TEXTS[kind]
        save_checkpoint(build(family, head), family.tokenizer(), tmp_path)
    elif kind in QUICK:
        save(build_images(QUICK[kind]), QUICK[kind], tmp_path)
    else:
        small_model(kind, "tied", tmp_path)
    folder = Folder(tmp_path)
    loaded = load(folder)
    assert " outputs as in transformers 5." in compare_with_original(folder, loaded)
    with torch.no_grad():
        next(parameter for name, parameter in loaded.model.named_parameters() if name.endswith("expand.weight")).add_(1)
    with pytest.raises(ParityError, match=r"differ from those of transformers .* --allow-different; the card records it"):
        compare_with_original(folder, loaded)
    if kind == "bart":
        check_other_outcomes(folder, loaded, monkeypatch)


@pytest.mark.parametrize(
    ("family", "head", "table", "output"),
    [
        (BERT, "ForPreTraining", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
        (ROBERTA, "ForMaskedLM", "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
        (EUROBERT, "ForMaskedLM", "model.embed_tokens.weight", "lm_head.weight"),
    ],
    ids=lambda each: each.name if isinstance(each, Family) else "",
)
def test_two_different_tables_are_not_tied(family: Family, head: str, table: str, output: str, tmp_path: Path) -> None:
    save_checkpoint(build(family, head, tie_word_embeddings=True), family.tokenizer(), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for factor, tied in ((1, True), (2, False)):
        both = {**weights, output: factor * weights[table]}
        save_file(both, tmp_path / "model.safetensors", metadata={"format": "pt"})
        loaded = load(Folder(tmp_path))
        assert loaded.model.config.tied == tied
        assert " outputs as in transformers 5." in compare_with_original(Folder(tmp_path), loaded)


def check_other_outcomes(folder: Folder, different: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    assert " differ from transformers 5." in compare_with_original(folder, different, allowed=True)
    (folder.path / "model.safetensors").unlink()
    assert "cannot load the checkpoint: " in compare_with_original(folder, different)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert compare_with_original(folder, different) == "not compared, transformers is not installed"


@pytest.mark.parametrize("kind", ["marian", "nllb", "pegasus"])  # the last one's files have them
def test_positions_of_half_precision_checkpoints_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = Folder(small_model(kind, "tied", tmp_path))
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.bfloat16).save_pretrained(tmp_path)
    difference = compare_with_original(folder, load(folder)).rpartition(" ")[2]
    assert float(difference) < 1e-4


def test_weights_that_are_not_numbers_are_named(tmp_path: Path) -> None:
    model = build(DISTILBERT, "ForMaskedLM")
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    save_checkpoint(model, DISTILBERT.tokenizer(), tmp_path)
    with pytest.raises(ParityError, match=r"have NaN: the weights are damaged, save them again"):
        compare_with_original(Folder(tmp_path), load(Folder(tmp_path)))
