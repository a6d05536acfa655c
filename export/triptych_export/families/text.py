"""Export of BERT-family models: fill-mask, text and token classification, question answering, embedding."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from triptych_export.bundle_files import (
    PRECISIONS,
    encoder_precisions,
    first_manifest,
    write_encoder,
    write_manifest,
    write_tokenizer,
    written_precisions,
)
from triptych_export.card import Description
from triptych_export.families.family import EncoderFamily, Say
from triptych_export.graphs.tracing import trace_text
from triptych_export.graphs.weight_folding import cache_head_dim
from triptych_export.parity.comparison import Outputs, spread, with_neighbours
from triptych_export.parity.text import RowForm, TextRow, absent_ids, answer_in_session, answer_in_torch, make_rows, random_rows
from triptych_serving.bundle.manifest import (
    FILL_MASK,
    INT8,
    INT8_WEIGHTS,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TEXT_EMBEDDING,
    TOKEN_CLASSIFICATION,
)
from triptych_serving.runtime.session import Session
from triptych_serving.text.bert_tokenizer import fill_template
from triptych_training.checkpoints.encoder import Sample, TextCheckpoint
from triptych_training.data.corpus import read_lines
from triptych_training.models.bert import BertForEmbedding, BertForPretraining, BertForQuestionAnswering, BertModel
from triptych_training.models.elmo import Elmo
from triptych_training.models.gpt_encoder import GptEncoder
from triptych_training.models.word2vec import StaticEmbedding

SHORT = 1_024  # tokens of a text, whose attention needs little memory
PARITY_TEXTS = 300
STATIC_PRECISIONS = ("fp32",)  # a table of vectors has no matrix to quantize, and ELMo no small loss

TASKS: Mapping[str, str] = {"pretraining": FILL_MASK, "embedding": TEXT_EMBEDDING}  # by head; others have the task's name
SENTENCES = {
    FILL_MASK: "Fills masked tokens and turns texts into vectors.",
    TEXT_CLASSIFICATION: "Labels texts.",
    TOKEN_CLASSIFICATION: "Labels the tokens of texts.",
    QUESTION_ANSWERING: "Finds the answer to a question in a text.",
    TEXT_EMBEDDING: "Turns texts into vectors.",
}


class TextFamily(EncoderFamily):
    """A model of the BERT family, in evaluation mode on the CPU; `shipped` are the precisions that the bundle will have.

    `samples` are texts, or pairs of texts, for parity; empty: random tokens.
    """

    def __init__(self, checkpoint: TextCheckpoint, samples: Sequence[Sample], shipped: Sequence[str]) -> None:
        self.embeds = checkpoint.head == "embedding"
        static = isinstance(checkpoint.model, StaticEmbedding | Elmo)
        self.language_model = isinstance(checkpoint.model.bert, GptEncoder)
        exact = self.embeds or self.language_model
        quantized = (INT8, INT8_WEIGHTS)  # of these, the card has the figures of both
        both = quantized if exact and not static and set(quantized) & set(shipped) else ()
        super().__init__(checkpoint.model.bert, checkpoint.provenance, written_precisions((*shipped, *both)))
        if exact:  # quantized activations would change which texts are nearest, and decoder-only models have large ones
            self.default_precisions = STATIC_PRECISIONS if static else (INT8_WEIGHTS, "fp32")
        self.checkpoint, self.samples = checkpoint, list(samples)
        self.default_name = TASKS.get(checkpoint.head, checkpoint.head)
        self._absent = absent_ids(checkpoint.tokenizer, checkpoint.model.config.vocabulary_size)

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
        write_text(self.checkpoint, folder, say, self.precisions)

    @cached_property
    def rows(self) -> list[TextRow]:
        """Encoded samples for parity."""
        model, tokenizer, template = self.checkpoint.model, self.checkpoint.tokenizer, self.checkpoint.template
        if self.samples:
            samples: list[str | tuple[str, ...]] = [
                fill_template(template, *([each] if isinstance(each, str) else each)) if template else each
                for each in spread(self.samples, PARITY_TEXTS)
            ]
            return make_rows(tokenizer, RowForm.of(model), samples)
        paired = isinstance(model, BertForPretraining) and model.next_sentence is not None
        pairs = paired or self.checkpoint.pairs or isinstance(model, BertForQuestionAnswering)
        return random_rows(tokenizer, RowForm.of(model), pairs)

    def _expected(self) -> list[Outputs]:
        return self._compared([answer_in_torch(self.checkpoint.model, row) for row in self.rows])

    def _run(self, session: Session, size: int) -> list[Outputs]:
        pad = self.checkpoint.model.config.pad_id
        return self._compared(answer_in_session(session, self.rows, size, pad, self._absent))

    def _compared(self, answers: list[Outputs]) -> list[Outputs]:
        """Add what is decided by a model that only makes vectors: which text is nearest."""
        return with_neighbours(answers, self.checkpoint.pooling) if self.embeds else answers


def write_text(checkpoint: TextCheckpoint, folder: Path, say: Say, precisions: Sequence[str] = PRECISIONS) -> None:
    """Write the graph in every precision, the tokenizer and a first manifest."""
    folder.mkdir()
    say("tracing the graph")
    absent = sorted(absent_ids(checkpoint.tokenizer, checkpoint.model.config.vocabulary_size))
    model = checkpoint.model
    write_encoder(folder, precisions, lambda half: trace_text(model, absent, half), _attends(model))
    write_tokenizer(checkpoint.tokenizer, folder / "tokenizer.json")
    write_manifest(folder, text_manifest(checkpoint, precisions))


def text_manifest(checkpoint: TextCheckpoint, precisions: Sequence[str]) -> dict[str, Any]:
    """Compose the manifest from the checkpoint."""
    model = checkpoint.model
    config, task = model.config, TASKS.get(checkpoint.head, checkpoint.head)
    special = {"pad": config.pad_id, "cls": config.cls_id, "sep": config.sep_id, "mask": config.mask_id}
    manifest = first_manifest(
        task,
        checkpoint.family,
        encoder_precisions(precisions, _attends(model)),
        tokens={name: id for name, id in special.items() if id is not None},
        limits={"max_tokens": config.max_positions},
        hidden_size=_vector_length(model),
    )
    if task in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION):
        manifest["labels"] = list(checkpoint.labels)
    if task == TEXT_CLASSIFICATION:
        manifest |= {"pairs": checkpoint.pairs, "logits": True}
        flags = {"singles": checkpoint.pairs and checkpoint.singles, "regression": checkpoint.regression}
        manifest |= {name: True for name, value in flags.items() if value}
    if checkpoint.template:
        manifest["template"] = list(checkpoint.template)
    if checkpoint.aggregation != "simple":
        manifest["aggregation"] = checkpoint.aggregation
    if isinstance(model.bert, GptEncoder) and not model.bert.config.bidirectional:
        manifest["causal_head"] = cache_head_dim(model.bert.gpt)
    if config.heads and config.max_positions > SHORT:  # scores, of which the causal operator has two copies
        manifest["pair_bytes"] = config.heads * (8 if "causal_head" in manifest else 4)
    if isinstance(model, StaticEmbedding):
        manifest["similarities"] = True
    if isinstance(model, Elmo):
        manifest["states"] = True
    if isinstance(model, BertForPretraining):
        manifest["next_sentence"] = model.next_sentence is not None
    if checkpoint.prompts:
        manifest["prompts"] = dict(checkpoint.prompts)
    if (checkpoint.pooling, checkpoint.normalize) != ("mean", False):
        manifest |= {"pooling": checkpoint.pooling, "normalize": checkpoint.normalize}
    return manifest


def _attends(model: BertModel) -> bool:
    """Tell whether there are graphs of the attention."""
    return model.config.heads > 0 and not isinstance(model.bert, GptEncoder)


def _vector_length(model: BertModel) -> int:
    """Return the length of a text's vector."""
    if isinstance(model, BertForEmbedding):
        return int(model.dense(torch.zeros(model.config.model_dim)).shape[0])
    return model.config.model_dim


def read_samples(paths: Sequence[str]) -> list[Sample]:
    """Read texts for parity: one per line, with a tab between the texts of a pair.

    Raises:
        CorpusError: a file cannot be read.
    """
    lines = (line.partition("\t") for path in paths for _, line in read_lines(Path(path)) if line.strip())
    return [(text, pair) if pair else text for text, _, pair in lines]
