"""Heads of decoder-only models and of EuroBERT, loaded and served in float32: the results are those of transformers."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, normalizers, processors

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families.text import write_text
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.tasks import RERANK_TASK, TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.text_model import TextModel

from ..fixtures.decoders import CHAT, END, LLAMA, NAMES, VARIANTS, byte_tokenizer
from ..fixtures.json_files import edit_json, write_json, write_modules
from .test_huggingface_text import (
    CROSS_ENCODER,
    LABELS,
    TEXTS,
    TOLERANCE,
    Family,
    build,
    check_labels,
    check_masks,
    check_token_labels,
    imported,
    load_text,
)
from .text_checkpoints import save_checkpoint

LABEL, TAG, MASK = "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"
POSITIONS = 384
LONGER = {
    "n_positions": {"n_positions": POSITIONS},
    "seq_length": {"seq_length": POSITIONS},
    "original_max_position_embeddings": {
        "original_max_position_embeddings": POSITIONS,
        "max_position_embeddings": 4 * POSITIONS,
    },
    "max_position_embeddings": {"max_position_embeddings": POSITIONS},
}


def framed_tokenizer(before: Sequence[str] = (), after: Sequence[str] = ()) -> Tokenizer:
    """Make a tokenizer that puts tokens around texts."""
    tokenizer = byte_tokenizer()
    ids = [(token, tokenizer.token_to_id(token)) for token in {*before, *after}]
    if ids:
        single, pair = [*before, "$A", *after], [*before, "$A", *before, "$B", *after]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return tokenizer


TOKENIZERS = {  # by variant; of all others, nothing is around a text
    "llama": partial(framed_tokenizer, CHAT[:1]),
    "gpt2": partial(framed_tokenizer, (), [END]),  # which is the padding, too
    "gemma3": partial(framed_tokenizer, CHAT[:1], CHAT[1:]),
}


def family(variant: str, **options: Any) -> Family:
    name, sizes = NAMES[variant.split(maxsplit=1)[0]], VARIANTS[variant]
    longer = next(LONGER[member] for member in LONGER if member in sizes)
    tokenizer = TOKENIZERS.get(variant, framed_tokenizer)
    return Family("Gemma3Text" if name == "Gemma3" else name, tokenizer, {**sizes, **longer, **options})


CASES = [
    (variant, head)
    for variant, sizes in VARIANTS.items()
    for head in (LABEL, TAG)
    if hasattr(transformers, family(variant).name + head) and " " not in variant
]
FAST = [("qwen3", LABEL), ("gpt2", LABEL), ("gpt2", TAG)]
EUROBERT = Family(
    "EuroBert",
    partial(framed_tokenizer, CHAT[:1], [END]),
    {
        **LLAMA,
        **{"hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "mask_token_id": 2},
        **{"max_position_embeddings": POSITIONS, "eos_token_id": 0},
    },
)


def test_a_classifier_of_chats_takes_plain_texts(tmp_path: Path) -> None:
    """A reward model of trl is one."""
    sizes = family("qwen3")
    save_checkpoint(build(sizes, LABEL), sizes.tokenizer(), tmp_path)
    assert "chat_not_carried_over" not in load_text(tmp_path).provenance
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert "texts are classified as they are, and special" in load_text(tmp_path).provenance["chat_not_carried_over"]


@pytest.mark.parametrize(
    ("variant", "head"), [pytest.param(*case, marks=[] if case in FAST else pytest.mark.full) for case in CASES]
)
def test_labels_equal_those_of_transformers(variant: str, head: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_labels": 3} if head == LABEL else {"id2label": LABELS}
    with imported(tmp_path, family(variant), head, **options) as model:
        assert bool(model.served.manifest.causal_head)
        (check_labels if head == LABEL else check_token_labels)(model)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        pytest.param(LABEL, {"num_labels": 3}, id="late"),
        pytest.param(LABEL, {"num_labels": 2, "classifier_pooling": "bos"}, marks=pytest.mark.full),
        pytest.param(LABEL, {**CROSS_ENCODER, "classifier_pooling": "mean"}, marks=pytest.mark.full),
        pytest.param(TAG, {"id2label": LABELS}, marks=pytest.mark.full),
        pytest.param(MASK, {"mlp_bias": True}, id="masks"),
        pytest.param(MASK, {"tie_word_embeddings": True}, marks=pytest.mark.full),
    ],
)
def test_heads_of_eurobert(head: str, options: dict[str, Any], tmp_path: Path) -> None:
    checks = {LABEL: check_labels, TAG: check_token_labels, MASK: check_masks}
    with imported(tmp_path, EUROBERT, head, **options) as model:
        checks[head](model)


@torch.no_grad()
def test_a_decoder_reranks_as_in_transformers(tmp_path: Path) -> None:
    """Its config.json names no padding, and a module is all that sentence-transformers adds to it."""
    sizes = family("llama", **CROSS_ENCODER, pad_token_id=None)
    theirs, tokenizer = build(sizes, LABEL), sizes.tokenizer()
    save_checkpoint(theirs, tokenizer, tmp_path / "theirs")
    write_modules(tmp_path / "theirs", [("", "Transformer")])
    write_json(tmp_path / "theirs/sentence_bert_config.json", {"transformer_task": "sequence-classification"})
    bundle = open_bundle(export(tmp_path / "theirs", ExportOptions(tmp_path / "models"), lambda line: None))
    assert list(bundle.manifest.precisions) == ["int8-weights", "fp32"]
    pairs = [(TEXTS[0], text) for text in TEXTS]
    logits = torch.cat([theirs(torch.tensor([tokenizer.encode(*pair).ids])).logits[:, 0] for pair in pairs])
    with closing(TextModel("model", 1, bundle, EncoderOptions("fp32", runs=1))) as served:
        raw = served.run(RERANK_TASK, pairs, raw_scores=True)
        scores = [one.score for one in served.run(RERANK_TASK, pairs)]
        assert bundle.manifest_of(TextManifest).tokens.cls is None
    assert [one.index for one in raw] == logits.argsort(descending=True).tolist()
    assert [one.score for one in raw] == pytest.approx(logits.sort(descending=True).values.tolist(), abs=TOLERANCE)
    assert scores == pytest.approx(torch.sigmoid(logits).sort(descending=True).values.tolist(), abs=TOLERANCE)


@pytest.mark.full
@pytest.mark.parametrize(
    ("sizes", "head"), [(family("gpt2"), LABEL), (family("glm"), TAG), (EUROBERT, LABEL), (EUROBERT, MASK)]
)
def test_half_precision(sizes: Family, head: str, tmp_path: Path) -> None:
    save_checkpoint(build(sizes, head), sizes.tokenizer(), tmp_path / "theirs")
    options = ExportOptions(tmp_path / "models", precisions=("fp16",))
    assert "fp16" in open_bundle(export(tmp_path / "theirs", options, lambda line: None)).manifest.parity


@pytest.mark.full
@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_labels_may_be_independent(problem: str, tmp_path: Path) -> None:
    with imported(tmp_path, family("mistral"), LABEL, num_labels=3, problem_type=problem) as model:
        check_labels(model)


def test_rows_of_int8_do_not_depend_on_each_other(tmp_path: Path) -> None:
    """One scale for all rows would be that of the token with the largest values."""
    sizes = family("qwen2")
    save_checkpoint(build(sizes, LABEL, num_labels=5), sizes.tokenizer(), tmp_path / "theirs")
    write_text(load_text(tmp_path / "theirs"), tmp_path / "bundle", lambda line: None, ("int8",))
    with closing(TextModel("model", 1, open_bundle(tmp_path / "bundle"), EncoderOptions("int8", runs=1))) as served:
        together = served.run(TEXT_CLASSIFICATION_TASK, TEXTS, raw_scores=True)
        alone = [served.run(TEXT_CLASSIFICATION_TASK, [text], raw_scores=True)[0] for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        assert [each.score for each in one.labels] == pytest.approx([each.score for each in other.labels], abs=TOLERANCE)


def test_long_and_vanishing_texts(tmp_path: Path) -> None:
    tokenizer = framed_tokenizer()
    tokenizer.normalizer = normalizers.Replace("x", "")
    sizes = family("qwen2", max_position_embeddings=9_000)
    save_checkpoint(build(sizes, LABEL, num_labels=2), tokenizer, tmp_path / "theirs")
    write_text(load_text(tmp_path / "theirs"), tmp_path / "bundle", lambda line: None, ("fp32",))
    bundle = open_bundle(tmp_path / "bundle")
    manifest = bundle.manifest_of(TextManifest)
    assert (manifest.tokens.sep, manifest.limits.max_tokens) == (None, 8_192)
    with closing(TextModel("model", 1, bundle, EncoderOptions("fp32", runs=1))) as served:
        assert len(served.run(TEXT_CLASSIFICATION_TASK, ["Rain.", ("x", "Rain.")])) == 2
        with pytest.raises(InvalidInputError, match=r"inputs\[1\]: the text is empty"):
            served.run(TEXT_CLASSIFICATION_TASK, ["Rain.", "xx"])


def change_config(folder: Path, **members: Any) -> None:
    edit_json(folder / "config.json", **members)


def change_message_format(folder: Path) -> None:
    write_modules(folder, [("", "Transformer")])
    form = {"method": "forward", "method_output_name": "logits"}
    write_json(folder / "sentence_bert_config.json", {"modality_config": {"text": form, "message": {**form, "format": "flat"}}})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (partial(change_config, architectures=["Qwen3ForTokenClassification"]), r"missing score\.bias"),
        (partial(change_config, architectures=["LlamaForSequenceClassification"]), "supported: Qwen3ForSequenceClassification"),
        (partial(change_config, architectures=["Qwen3ForQuestionAnswering"]), "supported of qwen3: Qwen3ForCausalLM"),
        (partial(change_config, token_classification_bias=False), "token_classification_bias: False is not supported"),
        (partial(change_config, problem_type="ranking"), "problem_type: 'ranking' is not supported"),
        (change_message_format, r"no chat template, and modules\.json names a model that reads texts as chats"),
    ],
)
def test_what_is_not_supported_is_refused(spoil: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    sizes = family("qwen3")
    save_checkpoint(build(sizes, LABEL, num_labels=2), sizes.tokenizer(), tmp_path)
    load_text(tmp_path)
    spoil(tmp_path)
    with pytest.raises(SourceError, match=message):
        load(Folder(tmp_path))


def test_poolings_of_eurobert_are_checked(tmp_path: Path) -> None:
    save_checkpoint(build(EUROBERT, LABEL), EUROBERT.tokenizer(), tmp_path)
    edit_json(tmp_path / "config.json", classifier_pooling="max")
    with pytest.raises(SourceError, match="classifier_pooling: 'max' is none of bos, mean, late"):
        load(Folder(tmp_path))
