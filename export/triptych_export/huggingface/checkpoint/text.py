"""Text encoders with the heads of Hugging Face's classes: loading, pooling settings and special token ids.

Source of sentence-transformers folders: https://sbert.net/docs/sentence_transformer/usage/custom_models.html
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from torch import nn

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL, integer
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules, make_model
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import CONFIG, Folder, neutral
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
from triptych_training.models.gpt_encoder import GptEncoder
from triptych_training.models.rotary import Rotary

MODULES, MODEL_FILE = "modules.json", "config_sentence_transformers.json"
KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
SCORE_OF_TOKENS = "LogitScore"  # the module of rerankers that are language models
TRANSFORMER_FILES = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "xlm-roberta")
)
POSITIONS = "max_position_embeddings"
SHORTEST_LIMIT = 4  # tokens
LONGEST_LIMIT = 10**6  # larger ones stand for "none"
SHOWN = 8  # special tokens on the card
Poolings = Mapping[str, str]  # our name of each mode of pooling, by the names that files have for it
MEANS = {"pooling_mode_mean_tokens": "mean", "mean": "mean"}
POOLINGS: Poolings = {**MEANS, "pooling_mode_cls_token": "cls", "cls": "cls"}
POOLINGS_OF_DECODERS: Poolings = {**MEANS, "pooling_mode_lasttoken": "cls", "lasttoken": "cls"}
# Known members of these files; without values: read, or of no effect. Requests choose how vectors are compared.
KNOWN_OF_MODULES = neutral("idx name path type", kwargs=([],))
KNOWN_OF_TRANSFORMER = neutral(
    "max_seq_length do_lower_case unpad_inputs",
    transformer_task=("feature-extraction", "sequence-classification"),
    modality_config=tuple(
        {"text": {"method": "forward", "method_output_name": name}} for name in ("last_hidden_state", "logits")
    ),
    module_output_name=("token_embeddings", "scores"),
    **dict.fromkeys(("processing_kwargs", "model_args", "tokenizer_args", "config_args"), ({},)),
)
KNOWN_OF_POOLING = neutral(
    "word_embedding_dimension embedding_dimension pooling_mode include_prompt pooling_mode_cls_token pooling_mode_mean_tokens "
    "pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken"
)
KNOWN_OF_DENSE = neutral("in_features out_features bias activation_function")
ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
}
DENSE_RULES = (Rule("0", "linear"),)
KNOWN_OF_NORMALIZE = neutral("", module_input_name=("sentence_embedding",), module_output_name=("sentence_embedding",))
KNOWN_OF_MODEL = neutral(
    "__version__ prompts default_prompt_name similarity_fn_name requirements", model_type=("SentenceTransformer",)
)


@dataclass(frozen=True)
class SentenceSettings:
    """Settings of a sentence-transformers folder."""

    pooling: str = "mean"  # how a text's vector is made from the states: "mean" or "cls"
    dense: Sequence[str] = ()  # folders of the layers that are applied to the vector
    normalize: bool = False  # scale that vector to length 1
    max_tokens: int | None = None  # length of the texts that the model was trained on; None: as many as it has positions
    lowercase: bool = False  # texts are lower-cased before they are tokenized
    prompt: str = ""  # put before every text
    prompts: Mapping[str, str] = field(default_factory=dict)  # all of them, by name

    @property
    def choices(self) -> Mapping[str, str]:
        """Prompts that callers may name: beside a default one, which a bundle puts before every text, none."""
        return {} if self.prompt else self.prompts


def read_modules(folder: Folder) -> list[tuple[str, str]]:
    """List kind and path of the modules of modules.json; none if there is no such file.

    Raises:
        SourceError: the file is damaged.
    """
    path = folder.path / MODULES
    if not folder.has(MODULES):
        return []
    try:
        listed = json.loads(path.read_text("utf-8"))
        modules = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path}: not a list of modules ({type(error).__name__}: {error})") from error
    folder.closed.extend((MODULES, each, KNOWN_OF_MODULES) for each in listed)
    return modules


def read_sentence_settings(folder: Folder, poolings: Poolings = POOLINGS, chats: bool = False) -> SentenceSettings | None:
    """Read modules.json and the files that belong to it; None if the model makes no vectors.

    `poolings` are those that the model can have; with `chats`, a cross-encoder's pairs are chats, which are read elsewhere.

    Raises:
        SourceError: bundles do not support a setting.
    """
    modules = read_modules(folder)
    if not modules:
        return None
    if _is_cross_encoder(folder, modules):
        if not chats:
            if read_prompts(folder)[0]:  # there it precedes the first text of a pair only
                remedy = "save the model without it, and add the prompt to queries"
                raise SourceError(f"{folder.path}: default_prompt_name is not supported of a cross-encoder; {remedy}")
            folder.read_closed(TRANSFORMER_FILES[0], KNOWN_OF_TRANSFORMER)
        return None
    if foreign := [kind for kind, _ in modules if kind not in KINDS]:
        raise SourceError(f"{folder.path / MODULES}: {', '.join(foreign)} is not supported; supported: {', '.join(KINDS)}")
    prompt, named = read_prompts(folder)
    pooling_folder = _check_order(folder, modules)
    file = f"{pooling_folder}/config.json"
    if (pooling := folder.read_closed(file, KNOWN_OF_POOLING)) is None:
        raise SourceError(f"{folder.path / file}: missing, {MODULES} names its folder")
    for place in (place for kind, place in modules if kind == "Normalize"):
        folder.read_closed(f"{place}/config.json", KNOWN_OF_NORMALIZE)
    folder.read_closed(MODEL_FILE, KNOWN_OF_MODEL)
    if any(named.values()) and pooling.get("include_prompt") is False:
        raise SourceError(f"{folder.path / file}: include_prompt: false is not supported, prompts count in the mean")
    found = next((name for name in TRANSFORMER_FILES if folder.has(name)), TRANSFORMER_FILES[0])
    transformer = folder.read_closed(found, KNOWN_OF_TRANSFORMER) or {}
    mode, normalize = _pooling(folder.path / file, pooling, poolings), "Normalize" in dict(modules)
    dense = [place for kind, place in modules if kind == "Dense"]
    limit, lowercase = _limit(folder, transformer), bool(transformer.get("do_lower_case"))
    return SentenceSettings(mode, dense, normalize, limit, lowercase, prompt, named)


def _is_cross_encoder(folder: Folder, modules: Sequence[tuple[str, str]]) -> bool:
    kinds = {TEXT: [], CAUSAL: [SCORE_OF_TOKENS]}
    wanted = next((after for suffix, after in kinds.items() if folder.architecture.endswith(suffix)), None)
    return modules[0] == ("Transformer", "") and [kind for kind, _ in modules[1:]] == wanted


def _check_order(folder: Folder, modules: Sequence[tuple[str, str]]) -> str:
    """Return the folder of the pooling's settings; raises SourceError if the modules compute something else than bundles do."""
    kinds, places = zip(*modules, strict=True)
    later = [kind for kind in kinds[2:] if kind != "Dense"]
    if kinds[:2] != KINDS[:2] or set(later) - {"Normalize"} or list(kinds[len(kinds) - len(later) :]) != later:
        known = "Transformer, Pooling, any number of Dense, and then Normalize or nothing"
        raise SourceError(f"{folder.path / MODULES}: the modules {', '.join(kinds)} are not supported; supported: {known}")
    if places[0]:
        remedy = "load and save the model with a newer version of sentence-transformers"
        raise SourceError(f"{folder.path / MODULES}: the Transformer is in {places[0]!r}, not in the folder itself; {remedy}")
    return str(places[1])


def read_prompts(folder: Folder) -> tuple[str, Mapping[str, str]]:
    """Read the default prompt, and all prompts by name; any may be empty."""
    members = folder.members(MODEL_FILE)
    prompts, default = members.get("prompts") or {}, members.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise SourceError(f"{folder.path / MODEL_FILE}: prompts: {prompts!r:.60}, expected texts by name")
    if default and (not isinstance(default, str) or default not in prompts):
        problem = f"default_prompt_name: {default!r} is not among prompts: {', '.join(prompts)}"
        raise SourceError(f"{folder.path / MODEL_FILE}: {problem}")
    return (prompts[default] or "") if default else "", {name: text or "" for name, text in prompts.items()}


def _limit(folder: Folder, transformer: Mapping[str, Any]) -> int | None:
    """Read the length of texts, which newer files leave to the tokenizer; None: as many tokens as the model has positions."""
    limit = transformer.get("max_seq_length")
    if limit is None:
        limit = folder.members("tokenizer_config.json").get("model_max_length")
        if isinstance(limit, int | float) and limit > LONGEST_LIMIT:
            return None
    if limit is not None and (type(limit) is not int or limit < SHORTEST_LIMIT):
        raise SourceError(f"{folder.path}: max_seq_length: {limit!r}, expected a whole number of at least {SHORTEST_LIMIT}")
    return limit


def _pooling(path: object, members: dict[str, Any], poolings: Poolings) -> str:
    """Read the pooling mode: older files have a flag for each mode, newer ones a name."""
    named = [name for name, value in members.items() if name.startswith("pooling_mode_") and value is True]
    if (given := members.get("pooling_mode")) is not None:
        named = [str(mode) for mode in given] if isinstance(given, list) else [str(given)]
    if len(named) != 1 or named[0] not in poolings:
        known = ", ".join(name for name in poolings if not name.startswith("pooling_"))
        raise SourceError(f"{path}: pooling by {' and '.join(named) or 'nothing'} is not supported; supported: {known}")
    return poolings[named[0]]


def _read_dense(folder: Folder, places: Sequence[str], width: int) -> nn.Module:
    """Read the layers that are applied to a vector of length `width`; raises SourceError if one cannot be read."""
    layers = nn.Sequential()
    for place in places:
        members = folder.read_closed(file := f"{place}/{CONFIG}", KNOWN_OF_DENSE) or {}
        name, out = members.get("activation_function", "torch.nn.modules.activation.Tanh"), members.get("out_features")
        if name not in ACTIVATIONS or type(out) is not int or out < 1:
            known = ", ".join(ACTIVATIONS)
            problem = f"out_features: {out!r} is no number above 0, or activation_function: {name!r} is none of {known}"
            raise SourceError(f"{folder.path / file}: {problem}")
        with torch.device("meta"):
            layer = nn.Sequential(nn.Linear(width, out, bool(members.get("bias", True))), ACTIVATIONS[name]())
        load_rules(layer, open_weights(folder.path / place), DENSE_RULES)
        layers.append(layer)
        width = out
    return layers if places else nn.Identity()


def prepare_tokenizer(tokenizer: Tokenizer, settings: SentenceSettings) -> None:
    """Let the tokenizer lower-case texts and put the prompt before them, as sentence-transformers does before it.

    Raises:
        SourceError: the tokenizer would put the prompt before each piece of a text.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if settings.prompt and (cutting := [token.content for token in added if not token.special and not token.normalized]):
        problem = f"the added token {cutting[0]!r} cuts texts before the default prompt is added"
        raise SourceError(f"tokenizer: {problem}; save the model without default_prompt_name, and add the prompt to texts")
    first: list[normalizers.Normalizer] = [normalizers.Prepend(settings.prompt)] if settings.prompt else []
    first += [normalizers.Lowercase()] if settings.lowercase else []
    if first:
        tokenizer.normalizer = normalizers.Sequence([*first, *([tokenizer.normalizer] if tokenizer.normalizer else [])])


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
    mask = _number(folder, tokenizer, "mask_token")
    if mask is None and masks:
        raise SourceError(f"{folder.path}: the model fills masks, and its tokenizer has no mask_token")
    cls, sep = [None, None, *framing][-2:]
    return SpecialIds(pad, cls, sep, pad if mask is None else mask)


def _number(folder: Folder, tokenizer: Tokenizer, name: str) -> int | None:
    """Return the id of a special token that the files name, or that usually has this role; None if there is none."""
    named = read_special_tokens(folder, {}).name(name)
    numbers = (tokenizer.token_to_id(token) for token in (named, *USUAL_TOKENS[name]) if token)
    return next((number for number in numbers if number is not None), None)


# Suffixes of Hugging Face's class names.
BARE, MASKED, PRETRAINING = "Model", "ForMaskedLM", "ForPreTraining"
CAUSAL = "ForCausalLM"
TEXT, TOKENS, ANSWER = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
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
    encoder: Callable[[EncoderConfig], Sequence[Rule]]  # makes the encoder's rules, given the shape
    heads: Mapping[str, Sequence[Rule]]  # rules of each supported head, by the suffix of its class name
    prefixes: tuple[str, ...]  # optional leading parts of the encoder's tensor names
    ignored: tuple[str, ...]  # patterns of weights that only other heads need


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
    sentences = read_sentence_settings(folder)
    head = BARE if sentences else find_head(folder, mapping.classes, list(mapping.heads))
    tokenizer = text_tokenizer(folder)
    special = special_ids(folder, tokenizer, masks=head in (MASKED, PRETRAINING))
    labels = read_labels(folder) if head in (TEXT, TOKENS) else ()
    independent = head == TEXT and is_independent(folder, len(labels))
    options = len(labels), independent, head == PRETRAINING
    model = make_model(folder, lambda: make_bert(HEADS[head], mapping.config(folder, special), *options))
    rules = [*mapping.encoder(model.config), *mapping.heads[head]]
    load_rules(model, open_weights(folder.path), rules, mapping.ignored, mapping.prefixes)
    return assemble(folder, model, tokenizer, sentences or SentenceSettings(), labels)


def assemble(
    folder: Folder, model: EncoderModel, tokenizer: Tokenizer, settings: SentenceSettings, labels: Sequence[str]
) -> TextCheckpoint:
    """Apply the settings of sentence-transformers to a loaded model and its tokenizer; raises SourceError as `load_text`."""
    prepare_tokenizer(tokenizer, settings)
    if isinstance(model, BertForEmbedding):
        model.dense = _read_dense(folder, settings.dense, model.config.model_dim)
    if settings.max_tokens and settings.max_tokens < model.config.max_positions:
        _shorten(model, settings.max_tokens)
    notes = {"default_prompt": repr(settings.prompt)} if settings.prompt else {}
    if others := ", ".join(f"{name}: {text!r}" for name, text in settings.prompts.items() if text not in {"", settings.prompt}):
        # There they replace the default one, which a bundle puts before every text.
        notes["prompts_not_available" if settings.prompt else "prompts"] = others
    if markers := [token.content for token in read_special_tokens(folder, {}).additional]:
        notes["special_tokens_read_as_text"] = ", ".join(markers[:SHOWN]) + (", ..." if len(markers) > SHOWN else "")
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


def read_labels(folder: Folder) -> tuple[str, ...]:
    """Labels in class order; without names, Hugging Face's defaults (LABEL_0, ...)."""
    named = folder.config.get("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(integer(folder, "num_labels", 2)))
    try:
        labels = {int(number): "" if label is None else " ".join(str(label).split()) for number, label in named.items()}
    except (AttributeError, ValueError) as error:
        raise folder.config_error(f"id2label: {named!r:.200}, expected labels by class number") from error
    if sorted(labels) != list(range(len(labels))) or len({*labels.values(), ""}) <= len(labels):
        raise folder.config_error(f"id2label: {named!r:.200}, expected different labels numbered from 0, none of them empty")
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
