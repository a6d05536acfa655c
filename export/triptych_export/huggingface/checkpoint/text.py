"""Text encoders with the heads of Hugging Face's classes: loading, labels and special token ids."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.config import (
    ANSWER,
    BARE,
    MASKED,
    MULTI_LABEL,
    PRETRAINING,
    REGRESSION,
    SINGLE_LABEL,
    TEXT,
    TOKENS,
    integer,
)
from triptych_export.huggingface.checkpoint.mapping import Rule, is_one_matrix, load_rules, make_model
from triptych_export.huggingface.checkpoint.sentence_transformers import (
    SentenceSettings,
    classifier_settings,
    list_prompts,
    prepare_tokenizer,
    read_layers,
    read_sentence_settings,
)
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import CONFIG, Folder, Neutral
from triptych_export.huggingface.tokenizers.special_tokens import read_special_tokens
from triptych_export.huggingface.tokenizers.tokenizer import text_tokenizer
from triptych_training.checkpoints.encoder import TextCheckpoint, make_bert
from triptych_training.models.bert import (
    Bert,
    BertForEmbedding,
    BertForSequenceClassification,
    EncoderConfig,
    EncoderModel,
)
from triptych_training.models.gpt_encoder import LAST, GptEncoder
from triptych_training.models.rotary import Rotary

POSITIONS = "max_position_embeddings"
TABLES = ("bert.embedding.tokens.weight", "masked_token.projection.weight")  # our names of embedding and output
SHOWN = 8  # special tokens on the card
SETFIT_HEAD = "model_head.pkl"
RELEVANCE = "relevance"  # label of rerankers without one


def _shorten(model: EncoderModel, limit: int) -> None:
    """Reduce a model's positions to `limit`."""
    for module in model.modules():
        if isinstance(module, Rotary):
            module.cosines, module.sines = module.cosines[:limit].clone(), module.sines[:limit].clone()
    model.config = model.bert.config = replace(model.config, max_positions=limit)
    if isinstance(model.bert, GptEncoder):
        model.bert.gpt.config = replace(model.bert.gpt.config, max_positions=limit)
    if isinstance(model.bert, Bert) and (positions := model.bert.embedding.positions) is not None:
        positions.weight, positions.num_embeddings = nn.Parameter(positions.weight[:limit].clone(), requires_grad=False), limit


USUAL_TOKENS = {"mask_token": ("[MASK]", "<mask>"), "pad_token": ("[PAD]", "<pad>")}


@dataclass(frozen=True)
class SpecialIds:
    """Special ids; without a mask token, `mask` is the padding id and never used.

    `cls` is None if `sep` is the only one around a text, and both are if there is none.
    """

    pad: int
    cls: int | None
    sep: int | None
    mask: int


def special_ids(folder: Folder, tokenizer: Tokenizer, masks: bool, bare: bool = False) -> SpecialIds:
    """Read the special ids from config.json and the tokenizer; a model that fills masks needs a mask token.

    `bare`: there may be one id or none around a text instead of two, and no token for padding.

    Raises:
        SourceError: the tokenizer adds other tokens than [CLS] and [SEP], lacks a token, or has ids beyond the embedding.
    """
    framing = tokenizer.encode("").ids
    if len(framing) != 2 and not (bare and len(framing) < 2):
        remedy = "" if framing else "; if the model was trained with them, name the tokenizer_class that adds them"
        problem = f"the tokenizer makes {framing} of an empty text, expected two ids, [CLS] and [SEP]{remedy}"
        raise SourceError(f"{folder.path}: {problem}")
    size, highest = folder.config.get("vocab_size"), max(tokenizer.get_vocab(with_added_tokens=True).values())
    if isinstance(size, int) and highest >= size:
        token = tokenizer.id_to_token(highest)
        raise SourceError(
            f"{folder.path}: the tokenizer has {token!r} as number {highest:,}, {CONFIG} a vocab_size of {size:,}"
        )
    pad = folder.config.get("pad_token_id")
    pad = None if pad == -1 else pad  # of the first Llamas
    pad = _number(folder, tokenizer, "pad_token") if pad is None else pad
    if pad is None and bare:
        pad = framing[-1] if framing else 0  # any token will do
    if pad is None:
        raise SourceError(f"{folder.path}: neither {CONFIG} nor the tokenizer names a token for padding")
    if type(pad) is not int:
        raise folder.config_error(f"pad_token_id: {pad!r:.60}, expected a whole number")
    mask = _number(folder, tokenizer, "mask_token")
    if mask is None and masks:
        raise SourceError(f"{folder.path}: the model fills masks, and its tokenizer has no mask_token")
    cls, sep = [None, None, *framing][-2:]
    return SpecialIds(pad, cls, sep, pad if mask is None else mask)


def _number(folder: Folder, tokenizer: Tokenizer, name: str) -> int | None:
    """Return the id of a special token that the files name, or that usually has this role; None if there is none."""
    named = read_special_tokens(folder).name(name)
    numbers = (tokenizer.token_to_id(token) for token in (named, *USUAL_TOKENS[name]) if token)
    return next((number for number in numbers if number is not None), None)


HEADS = {  # our names
    BARE: "embedding",
    MASKED: "pretraining",
    PRETRAINING: "pretraining",
    TEXT: "text-classification",
    TOKENS: "token-classification",
    ANSWER: "question-answering",
}


@dataclass(frozen=True)
class TextMapping:
    """Description of a family: class names, config members and weight rules."""

    classes: tuple[str, ...]  # prefixes of the class names, such as "Bert" of BertForMaskedLM
    config: Callable[[Folder, SpecialIds], EncoderConfig]  # reads the model's shape from config.json
    encoder: Sequence[Rule] | Callable[[EncoderConfig], Sequence[Rule]]  # the encoder's rules, or what makes them of the shape
    heads: Mapping[str, Sequence[Rule]]  # rules of each supported head, by the suffix of its class name
    prefixes: tuple[str, ...]  # optional leading parts of the encoder's tensor names
    ignored: tuple[str, ...]  # patterns of weights that only other heads need
    neutral: Neutral  # members of config.json that change no result
    # What a folder's files change in the description; raises SourceError if they are not supported.
    adapt: Callable[[Folder, "TextMapping"], "TextMapping"] = lambda _, mapping: mapping

    def encoder_rules(self, config: EncoderConfig) -> Sequence[Rule]:
        """Return the rules of an encoder of this shape."""
        return self.encoder(config) if callable(self.encoder) else self.encoder


def encoder_members(
    folder: Folder,
    special: SpecialIds,
    model_dim: str = "hidden_size",
    heads: str = "num_attention_heads",
    feedforward_dim: str = "intermediate_size",
    layers: str = "num_hidden_layers",
    positions: int | None = None,
) -> dict[str, Any]:
    """Members that all encoders' configs share, from members of config.json with the given names.

    `positions` is the default of the number of positions.

    Raises:
        KeyError: a member is missing.
    """
    config = folder.config
    return {
        "vocabulary_size": config["vocab_size"],
        "model_dim": config[model_dim],
        "heads": config[heads],
        "feedforward_dim": config[feedforward_dim],
        "layers": config[layers],
        "max_positions": integer(folder, POSITIONS, positions) if positions else config[POSITIONS],
        "tied": config.get("tie_word_embeddings", True),
        "pad_id": special.pad,
        "cls_id": special.cls,
        "sep_id": special.sep,
        "mask_id": special.mask,
    }


def load_text(folder: Folder, mapping: TextMapping) -> TextCheckpoint:
    """Load the model of a folder, without samples.

    Raises:
        SourceError: the head is not supported, or files are missing, damaged or contradict each other.
    """
    mapping, sentences = mapping.adapt(folder, mapping), read_sentence_settings(folder)
    head = BARE if sentences else find_head(folder, mapping.classes, list(mapping.heads))
    tokenizer = text_tokenizer(folder)
    special = special_ids(folder, tokenizer, masks=head in (MASKED, PRETRAINING))
    labels = read_labels(folder) if head in (TEXT, TOKENS) else ()
    independent = head == TEXT and is_independent(folder, len(labels))
    options = len(labels), independent, head == PRETRAINING
    model = make_model(folder, lambda: make_bert(HEADS[head], mapping.config(folder, special), *options))
    rules, weights = [*mapping.encoder_rules(model.config), *mapping.heads[head]], open_weights(folder.path)
    if model.config.tied and not is_one_matrix(weights, [rule for rule in rules if rule.ours in TABLES]):
        config = replace(model.config, tied=False)
        model = make_model(folder, lambda: make_bert(HEADS[head], config, *options))
    load_rules(model, weights, rules, mapping.ignored, mapping.prefixes)
    return assemble(folder, model, tokenizer, sentences or classifier_settings(folder), labels)


def assemble(
    folder: Folder, model: EncoderModel, tokenizer: Tokenizer, settings: SentenceSettings, labels: Sequence[str]
) -> TextCheckpoint:
    """Apply the settings of sentence-transformers to a loaded model and its tokenizer; raises SourceError as `load_text`."""
    prepare_tokenizer(tokenizer, settings)
    if isinstance(model, BertForEmbedding) and (settings.layers or settings.dimensions):
        model.dense = read_layers(folder, settings, model.config.model_dim)
        if settings.scores:
            model = _as_classifier(model, settings.pooling)
            classes = model.classifier.out_features
            labels = (RELEVANCE,) if classes == 1 else read_labels(folder, classes)
    if settings.max_tokens and settings.max_tokens < model.config.max_positions:
        _shorten(model, settings.max_tokens)
    notes = {"default_prompt": repr(settings.prompt)} if settings.prompt else {}
    if others := list_prompts(settings.prompts, settings.prompt):
        # There they replace the default one, which a bundle puts before every text.
        notes["prompts_not_available" if settings.prompt or settings.chats else "prompts"] = others
    if markers := [token.content for token in read_special_tokens(folder).additional]:
        notes["special_tokens_read_as_text"] = ", ".join(markers[:SHOWN]) + (", ..." if len(markers) > SHOWN else "")
    if folder.has(SETFIT_HEAD):
        notes["classifier_not_carried_over"] = f"{SETFIT_HEAD} of SetFit is a pickle, which could run code; texts are embedded"
    # config.json does not say whether a classifier was trained on pairs or single texts
    both = isinstance(model, BertForSequenceClassification)
    return TextCheckpoint(
        model,
        tokenizer,
        labels,
        pairs=both,
        singles=both,
        regression=both and is_regression(folder),
        provenance={"architecture": folder.architecture, **notes},
        family=folder.model_type,
        pooling=settings.pooling,
        normalize=settings.normalize,
        prompts=settings.choices,
    )


def _as_classifier(model: BertForEmbedding, pooling: str) -> BertForSequenceClassification:
    """Make a text classifier of a model whose vectors are scores of labels."""
    *layers, scores = model.dense.children()
    linear = next(scores.children())
    assert isinstance(linear, nn.Linear)
    with torch.device("meta"):
        made = BertForSequenceClassification(model.config, linear.out_features)
    made.bert, made.pooler, made.classifier = model.bert, nn.Sequential(*layers), linear
    made.pooling = LAST if pooling == "cls" and isinstance(model.bert, GptEncoder) else pooling
    return made.eval()


def find_head(folder: Folder, classes: Sequence[str], heads: Sequence[str]) -> str:
    """Find the head of the folder's class, whose name is one of `classes` with one of `heads`.

    Raises:
        SourceError: it is another class.
    """
    for name in classes:
        if (head := folder.architecture.removeprefix(name)) != folder.architecture and head in heads:
            return head
    supported = ", ".join(f"{classes[0]}{head}" for head in heads)
    raise folder.config_error(f"{folder.architecture_fault}; supported: {supported}")


def read_labels(folder: Folder, classes: int = 0) -> tuple[str, ...]:
    """Labels in class order; without names, or if these are of another number of `classes`, LABEL_0 and so on."""
    named = folder.config.get("id2label")
    if named is None or (classes and len(named) != classes):
        return tuple(f"LABEL_{number}" for number in range(classes or integer(folder, "num_labels", 2)))
    try:
        labels = {int(number): "" if label is None else " ".join(str(label).split()) for number, label in named.items()}
    except (AttributeError, ValueError) as error:
        raise folder.config_error(f"id2label: {named!r:.200}, expected labels by class number") from error
    if sorted(labels) != list(range(len(labels))) or not all(labels.values()):
        raise folder.config_error(f"id2label: {named!r:.200}, expected labels numbered from 0, none of them empty")
    return tuple(labels[number] for number in range(len(labels)))


def is_independent(folder: Folder, labels: int) -> bool:
    """Tell whether each label has an independent probability (sigmoid), which a single one always has."""
    problem, supported = folder.config.get("problem_type"), (SINGLE_LABEL, MULTI_LABEL, REGRESSION)
    if problem not in (None, *supported):
        raise folder.config_error(f"problem_type: {problem!r} is not supported; supported: {', '.join(supported)}")
    return labels == 1 or problem in (MULTI_LABEL, REGRESSION)


def is_regression(folder: Folder) -> bool:
    """Tell whether the labels are quantities, which have no probabilities."""
    return folder.config.get("problem_type") == REGRESSION
