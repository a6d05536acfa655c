"""Shared loading of text encoders with the heads of Hugging Face's classes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.sentence_vectors import Vectors, read_vectors
from triptych_export.huggingface.checkpoint.special_ids import SpecialIds, special_ids
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_export.huggingface.tokenizers.tokenizer import text_tokenizer
from triptych_training.checkpoints.encoder import BertCheckpoint
from triptych_training.models.bert import (
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    EncoderConfig,
)

# The second halves of their classes' names.
BARE, MASKED, PRETRAINING = "Model", "ForMaskedLM", "ForPreTraining"
TEXT, TOKENS, ANSWER = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
SINGLE_LABEL, MULTI_LABEL = "single_label_classification", "multi_label_classification"


@dataclass(frozen=True)
class TextMapping:
    """Description of a family: class names, config members and weight rules.

    Args:
        classes: first halves of the classes' names.
        config: the shape that config.json describes.
        encoder: rules of the encoder, given the shape.
        heads: rules of each head that there is, by the second half of its class' name.
        prefixes: what the encoder's names may begin with.
        ignored: patterns of weights that only other heads need.
    """

    classes: tuple[str, ...]
    config: Callable[[Folder, SpecialIds], EncoderConfig]
    encoder: Callable[[EncoderConfig], Sequence[Rule]]
    heads: Mapping[str, Sequence[Rule]]
    prefixes: tuple[str, ...]
    ignored: tuple[str, ...]


def load_text(folder: Folder, mapping: TextMapping) -> BertCheckpoint:
    """Load the model of a folder, without samples.

    Raises:
        SourceError: the head is none of the mapping's, or files are missing, damaged or contradict each other.
    """
    vectors = read_vectors(folder)
    head = BARE if vectors else _head(folder, mapping)
    tokenizer = text_tokenizer(folder)
    special = special_ids(folder, tokenizer, masks=head in (MASKED, PRETRAINING))
    labels = _labels(folder) if head in (TEXT, TOKENS) else ()
    independent = head == TEXT and _independent(folder, len(labels))
    try:
        with torch.device("meta"):
            config = mapping.config(folder, special)
            model = _make(head, config, len(labels), independent)
    except KeyError as error:
        raise SourceError(f"{folder.path / CONFIG}: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise SourceError(f"{folder.path / CONFIG}: {error}") from error
    rules = [*mapping.encoder(config), *mapping.heads[head]]
    load_rules(model, open_weights(folder.path), rules, mapping.ignored, mapping.prefixes)
    made = vectors or Vectors()
    return BertCheckpoint(
        model,
        tokenizer,
        labels,
        {"architecture": folder.architecture},
        pairs=head == TEXT,  # it may have been trained on either; config.json does not say
        singles=head == TEXT,
        family=folder.model_type,
        pooling=made.pooling,
        normalize=made.normalize,
    )


def refuse(folder: Folder, expected: Mapping[str, object]) -> None:
    """Reject config members with unsupported values.

    Raises:
        SourceError: one has another.
    """
    for name, value in expected.items():
        if (found := folder.config.get(name, value)) != value:
            raise SourceError(f"{folder.path / CONFIG}: {name}: {found!r} is not supported; supported: {value!r}")


def _make(head: str, config: EncoderConfig, classes: int, independent: bool) -> BertModel:
    if head == TEXT:
        return BertForSequenceClassification(config, classes, independent)
    if head == TOKENS:
        return BertForTokenClassification(config, classes)
    if head == ANSWER:
        return BertForQuestionAnswering(config)
    return BertForEmbedding(config) if head == BARE else BertForPretraining(config, next_sentence=head == PRETRAINING)


def _head(folder: Folder, mapping: TextMapping) -> str:
    for name in mapping.classes:
        if (head := folder.architecture.removeprefix(name)) != folder.architecture and head in mapping.heads:
            return head
    found = f"architecture {folder.architecture!r}" if folder.architecture else "no architecture"
    supported = ", ".join(f"{mapping.classes[0]}{head}" for head in mapping.heads)
    raise SourceError(f"{folder.path / CONFIG}: {found} is not supported; supported: {supported}")


def _labels(folder: Folder) -> tuple[str, ...]:
    """Labels in class order; without names, Hugging Face's defaults (LABEL_0, ...)."""
    named = folder.config.get("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(int(folder.config.get("num_labels", 2))))
    try:
        labels = {int(number): str(label) for number, label in named.items()}
    except (AttributeError, ValueError) as error:
        raise SourceError(f"{folder.path / CONFIG}: id2label: {named!r} does not name numbers' labels") from error
    if sorted(labels) != list(range(len(labels))) or len(set(labels.values())) < len(labels):
        raise SourceError(f"{folder.path / CONFIG}: id2label: labels differ and are numbered from 0, got {named!r}")
    return tuple(labels[number] for number in range(len(labels)))


def _independent(folder: Folder, classes: int) -> bool:
    """Whether each label has an independent probability (sigmoid): multi-label models and models with one label."""
    problem = folder.config.get("problem_type")
    if problem not in (None, SINGLE_LABEL, MULTI_LABEL):
        raise SourceError(
            f"{folder.path / CONFIG}: problem_type: {problem!r} is not supported, its scores are no probabilities; "
            f"supported: {SINGLE_LABEL}, {MULTI_LABEL}"
        )
    return problem == MULTI_LABEL or classes == 1
