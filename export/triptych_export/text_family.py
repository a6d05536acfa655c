"""BERT checkpoints as bundles: fill-mask, text and token classification, question answering."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triptych_export.answers import report_answers
from triptych_export.bundle_files import (
    PRECISIONS,
    encoder_precisions,
    open_encoder,
    write_encoder,
    write_manifest,
    write_tokenizer,
)
from triptych_export.card import Description
from triptych_export.errors import SourceError
from triptych_export.family import Report, Say
from triptych_export.parity_text import answer_in_session, answer_in_torch, make_rows
from triptych_export.samples import spread
from triptych_export.text_graphs import text_graph
from triptych_export.tracing import trace_text
from triptych_serving.manifest import FILL_MASK, FORMAT, QUESTION_ANSWERING, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from triptych_training.bert import (
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from triptych_training.encoder_checkpoint import BERT, BertCheckpoint, load_bert_checkpoint

PARITY_TEXTS = 300

TASKS: Mapping[type, str] = {
    BertForPretraining: FILL_MASK,
    BertForSequenceClassification: TEXT_CLASSIFICATION,
    BertForTokenClassification: TOKEN_CLASSIFICATION,
    BertForQuestionAnswering: QUESTION_ANSWERING,
}
SENTENCES = {
    FILL_MASK: "Fills masked tokens and turns texts into vectors.",
    TEXT_CLASSIFICATION: "Labels texts.",
    TOKEN_CLASSIFICATION: "Labels the tokens of texts.",
    QUESTION_ANSWERING: "Finds the answer to a question in a text.",
}


class TextFamily:
    """A BERT checkpoint.

    Args:
        folder: what a training wrote.
        valid: files of texts for parity, one a line, a tab between the two of a pair; empty: the sample in the folder.

    Raises:
        SourceError: there are no texts, or a file of them cannot be read.
        TrainingError: the checkpoint cannot be read.
    """

    def __init__(self, folder: Path, valid: Sequence[str] = ()) -> None:
        self.checkpoint = load_bert_checkpoint(folder)
        self.samples = [text for path in valid for text in _read_texts(path)] if valid else list(self.checkpoint.samples)
        if not self.samples:
            raise SourceError(f"{folder}: holds no texts for the parity check; name a file of texts with --valid")

    @property
    def default_name(self) -> str:
        return TASKS[type(self.checkpoint.model)]

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.checkpoint.provenance

    def describe(self) -> Description:
        config = self.checkpoint.model.config
        rows: dict[str, object] = {
            "layers, heads, width": f"{config.layers}, {config.heads}, {config.model_dim}",
            "vocabulary": config.vocabulary_size,
            "longest text (tokens)": config.max_positions,
        }
        if self.checkpoint.labels:
            rows["labels"] = ", ".join(self.checkpoint.labels)
        return Description(SENTENCES[self.default_name], rows)

    def write(self, folder: Path, say: Say) -> None:
        write_text(self.checkpoint, folder, say)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        model, pad = self.checkpoint.model, self.checkpoint.model.config.pad_id
        rows = make_rows(self.checkpoint.tokenizer, model, spread(self.samples, PARITY_TEXTS))
        say("answering in PyTorch")
        expected = [answer_in_torch(model, row) for row in rows]
        say("comparing the bundle with PyTorch")
        sessions = {precision: open_encoder(folder, precision) for precision in PRECISIONS}
        parity = report_answers(expected, lambda precision, size: answer_in_session(sessions[precision], rows, size, pad))
        return parity, dict(self.provenance.get("metrics", {}))


def write_text(checkpoint: BertCheckpoint, folder: Path, say: Say) -> None:
    """The graph in every precision, tokenizer and a first manifest."""
    folder.mkdir()
    say("tracing the graph")
    write_encoder(trace_text(text_graph(checkpoint.model)), folder)
    write_tokenizer(checkpoint.tokenizer, folder / "tokenizer.json")
    write_manifest(folder, text_manifest(checkpoint))


def text_manifest(checkpoint: BertCheckpoint) -> dict[str, Any]:
    """All that the checkpoint says."""
    model = checkpoint.model
    config, task = model.config, TASKS[type(model)]
    manifest = {
        "format": FORMAT,
        "task": task,
        "family": BERT,
        "tokens": {"pad": config.pad_id, "cls": config.cls_id, "sep": config.sep_id, "mask": config.mask_id},
        "limits": {"max_tokens": config.max_positions},
        "hidden_size": config.model_dim,
        "precisions": encoder_precisions(),
        "default_precision": "fp32",
        "provenance": {},
        "metrics": {},
        "parity": {},
    }
    if task in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION):
        manifest["labels"] = list(checkpoint.labels)
    if task == TEXT_CLASSIFICATION:
        manifest["pairs"] = checkpoint.pairs
    if isinstance(model, BertForPretraining):
        manifest["next_sentence"] = model.next_sentence is not None
    return manifest


def _read_texts(path: str) -> list[str | tuple[str, str]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not UTF-8") from error
    parted = [line.partition("\t") for line in lines if line.strip()]
    return [(text, pair) if pair else text for text, _, pair in parted]
