"""Export of BERT-family models: fill-mask, text and token classification, question answering, embedding."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from triptych_export.bundle_files import (
    HALF_PRECISION,
    PRECISIONS,
    encoder_precisions,
    open_encoder,
    write_encoder,
    write_manifest,
    write_tokenizer,
)
from triptych_export.card import Description
from triptych_export.errors import SourceError
from triptych_export.families.family import Report, Say
from triptych_export.graphs.text import half_text_graph, text_graph
from triptych_export.graphs.tracing import trace_half_text, trace_text
from triptych_export.parity.comparison import report_answers
from triptych_export.parity.text import absent_ids, answer_in_session, answer_in_torch, make_rows, random_rows
from triptych_export.quantization.float16_ranges import within_half
from triptych_export.samples import spread
from triptych_serving.bundle.manifest import (
    FILL_MASK,
    FORMAT,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TEXT_EMBEDDING,
    TOKEN_CLASSIFICATION,
)
from triptych_training.checkpoints.encoder import BertCheckpoint, Sample, load_bert_checkpoint
from triptych_training.models.bert import (
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

PARITY_TEXTS = 300

TASKS: Mapping[type, str] = {
    BertForPretraining: FILL_MASK,
    BertForSequenceClassification: TEXT_CLASSIFICATION,
    BertForTokenClassification: TOKEN_CLASSIFICATION,
    BertForQuestionAnswering: QUESTION_ANSWERING,
    BertForEmbedding: TEXT_EMBEDDING,
}
SENTENCES = {
    FILL_MASK: "Fills masked tokens and turns texts into vectors.",
    TEXT_CLASSIFICATION: "Labels texts.",
    TOKEN_CLASSIFICATION: "Labels the tokens of texts.",
    QUESTION_ANSWERING: "Finds the answer to a question in a text.",
    TEXT_EMBEDDING: "Turns texts into vectors.",
}


def open_text_family(folder: Path, valid: Sequence[str] = (), extras: Sequence[str] = ()) -> "TextFamily":
    """Open a checkpoint folder of triptych_training.

    Args:
        folder: the checkpoint.
        valid: files of texts for parity, as `read_samples` takes them; empty: the sample in the folder.
        extras: precisions to write beside the usual ones.

    Raises:
        SourceError: there are no texts, or a file of them cannot be read.
        TrainingError: the checkpoint cannot be read.
    """
    checkpoint = load_bert_checkpoint(folder)
    samples = read_samples(valid) or list(checkpoint.samples)
    if not samples:
        raise SourceError(f"{folder}: holds no texts for the parity check; name a file of texts with --valid")
    return TextFamily(checkpoint, samples, extras)


class TextFamily:
    """A model of the BERT family.

    Args:
        checkpoint: its model is in evaluation mode on the CPU.
        samples: texts, or pairs of texts, for parity; empty: tokens drawn by lot.
        extras: precisions to write beside the usual ones.
    """

    def __init__(self, checkpoint: BertCheckpoint, samples: Sequence[Sample] = (), extras: Sequence[str] = ()) -> None:
        self.checkpoint = checkpoint
        self.samples = list(samples)
        self.extras = extras

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
        write_text(self.checkpoint, folder, say, self.extras)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        model, tokenizer = self.checkpoint.model, self.checkpoint.tokenizer
        pad, absent = model.config.pad_id, absent_ids(tokenizer, model.config.vocabulary_size)
        if self.samples:
            rows = make_rows(tokenizer, model, spread(self.samples, PARITY_TEXTS))
        else:
            rows = random_rows(tokenizer, model, _takes_pairs(self.checkpoint))
        say("answering in PyTorch")
        with within_half(model.bert) if HALF_PRECISION in self.extras else nullcontext():
            expected = [answer_in_torch(model, row) for row in rows]
        say("comparing the bundle with PyTorch")
        sessions = {precision: open_encoder(folder, precision) for precision in (*PRECISIONS, *self.extras)}
        parity = report_answers(
            expected, lambda precision, size: answer_in_session(sessions[precision], rows, size, pad, absent), self.extras
        )
        return parity, dict(self.provenance.get("metrics", {}))


def write_text(checkpoint: BertCheckpoint, folder: Path, say: Say, extras: Sequence[str] = ()) -> None:
    """Write the graph in every precision, the tokenizer and a first manifest."""
    folder.mkdir()
    say("tracing the graph")
    absent = sorted(absent_ids(checkpoint.tokenizer, checkpoint.model.config.vocabulary_size))
    half = trace_half_text(half_text_graph(checkpoint.model, absent)) if HALF_PRECISION in extras else None
    write_encoder(trace_text(text_graph(checkpoint.model, absent)), folder, half)
    write_tokenizer(checkpoint.tokenizer, folder / "tokenizer.json")
    write_manifest(folder, text_manifest(checkpoint, extras))


def text_manifest(checkpoint: BertCheckpoint, extras: Sequence[str] = ()) -> dict[str, Any]:
    """Compose the manifest from the checkpoint."""
    model = checkpoint.model
    config, task = model.config, TASKS[type(model)]
    manifest = {
        "format": FORMAT,
        "task": task,
        "family": checkpoint.family,
        "tokens": {"pad": config.pad_id, "cls": config.cls_id, "sep": config.sep_id, "mask": config.mask_id},
        "limits": {"max_tokens": config.max_positions},
        "hidden_size": config.model_dim,
        "precisions": encoder_precisions(extras),
        "default_precision": "fp32",
        "provenance": {},
        "metrics": {},
        "parity": {},
    }
    if task in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION):
        manifest["labels"] = list(checkpoint.labels)
    if task == TEXT_CLASSIFICATION:
        manifest["pairs"] = checkpoint.pairs
        if checkpoint.pairs and checkpoint.singles:
            manifest["singles"] = True
    if isinstance(model, BertForPretraining):
        manifest["next_sentence"] = model.next_sentence is not None
    if (checkpoint.pooling, checkpoint.normalize) != ("mean", False):
        manifest |= {"pooling": checkpoint.pooling, "normalize": checkpoint.normalize}
    return manifest


def read_samples(paths: Sequence[str]) -> list[Sample]:
    """Read texts for parity: one per line, with a tab between the texts of a pair.

    Raises:
        SourceError: a file cannot be read.
    """
    return [text for path in paths for text in _read_texts(path)]


def _takes_pairs(checkpoint: BertCheckpoint) -> bool:
    model = checkpoint.model
    paired = isinstance(model, BertForPretraining) and model.next_sentence is not None
    return paired or checkpoint.pairs or isinstance(model, BertForQuestionAnswering)


def _read_texts(path: str) -> list[Sample]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not UTF-8") from error
    parted = [line.partition("\t") for line in lines if line.strip()]
    return [(text, pair) if pair else text for text, _, pair in parted]
