"""Folders of sentence-transformers: their modules, and the settings of those that bundles support.

Source: https://sbert.net/docs/sentence_transformer/usage/custom_models.html
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from torch import Tensor, nn

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.config import CAUSAL, TEXT
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import CONFIG, Folder, neutral

MODULES, MODEL_FILE = "modules.json", "config_sentence_transformers.json"
KINDS = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
LAYERS = ("Dense", "LayerNorm")  # that are applied to the vector
MESSAGE, CHAT, FORMATS = "message", "chat_template", ("flat", "structured")  # a message's content is a text, or a list of parts
SCORE_OF_TOKENS = "LogitScore"  # the module of rerankers that are language models
TRANSFORMER_FILES = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "xlm-roberta")
)
SHORTEST_LIMIT = 4  # tokens
LONGEST_LIMIT = 10**6  # larger ones stand for "none"
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
VECTOR, SCORES = "sentence_embedding", "scores"
KNOWN_OF_DENSE = neutral(
    "in_features out_features bias activation_function",
    module_input_name=(VECTOR,),
    module_output_name=(VECTOR,),
    use_residual=(False,),
)
IDENTITY = "torch.nn.modules.linear.Identity"
ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    IDENTITY: nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
}
DENSE_RULES, NORM_RULES = (Rule("0", "linear"),), (Rule("0", "norm"),)
PROMPT_OF_PAIRS = (
    "default_prompt_name is not supported of a cross-encoder; save the model without it, and add the prompt to queries"
)
KNOWN_OF_NORMALIZE = neutral(module_input_name=(VECTOR,), module_output_name=(VECTOR,))
KNOWN_OF_MODEL = neutral(
    "__version__ prompts default_prompt_name similarity_fn_name requirements truncate_dim", model_type=("SentenceTransformer",)
)
KNOWN_OF_RANKER = {**KNOWN_OF_MODEL, **neutral("activation_fn", model_type=("CrossEncoder",), truncate_dim=(None,))}


@dataclass(frozen=True)
class SentenceSettings:
    """Settings of a sentence-transformers folder."""

    pooling: str = "mean"  # how a text's vector is made from the states: "mean" or "cls"
    layers: Sequence[tuple[str, str]] = ()  # that are applied to the vector: kind and folder
    dimensions: int | None = None  # only the first values of the vector are kept; None: all
    scores: bool = False  # the last one makes the scores of a pair of texts
    normalize: bool = False  # scale that vector to length 1
    max_tokens: int | None = None  # length of the texts that the model was trained on; None: as many as it has positions
    lowercase: bool = False  # texts are lower-cased before they are tokenized
    prompt: str = ""  # put before every text
    prompts: Mapping[str, str] = field(default_factory=dict)  # all of them, by name
    chats: bool = False  # texts become messages of chats, and a prompt that of the system

    @property
    def choices(self) -> Mapping[str, str]:
        """Prompts that callers may name: in chats, or beside a default one, which a bundle puts before every text, none."""
        return {} if self.prompt or self.chats else self.prompts


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

    `poolings` are those that the model can have; with `chats`, its texts may be messages of chats.

    Raises:
        SourceError: bundles do not support a setting.
    """
    modules = read_modules(folder)
    if not modules:
        return None
    chats = chats and reads_chats(folder)
    known = _known_of_chats(folder) if chats else KNOWN_OF_TRANSFORMER
    if _is_cross_encoder(folder, modules):
        if not chats and read_prompts(folder)[0]:
            raise SourceError(f"{folder.path}: {PROMPT_OF_PAIRS}")
        folder.read_closed(TRANSFORMER_FILES[0], known)
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
    layers = [(kind, place) for kind, place in modules if kind in LAYERS]
    scores = bool(layers) and folder.members(f"{layers[-1][1]}/{CONFIG}").get("module_output_name") == SCORES
    folder.read_closed(MODEL_FILE, KNOWN_OF_RANKER if scores else KNOWN_OF_MODEL)
    if scores and prompt and not chats:
        raise SourceError(f"{folder.path}: {PROMPT_OF_PAIRS}")
    if any(named.values()) and pooling.get("include_prompt") is False:
        raise SourceError(f"{folder.path / file}: include_prompt: false is not supported, prompts count in the mean")
    found = next((name for name in TRANSFORMER_FILES if folder.has(name)), TRANSFORMER_FILES[0])
    transformer = folder.read_closed(found, known) or {}
    mode, normalize = _pooling(folder.path / file, pooling, poolings), "Normalize" in dict(modules)
    limit, lowercase = _limit(folder, transformer), bool(transformer.get("do_lower_case"))
    if lowercase and chats:
        raise SourceError(f"{folder.path / found}: do_lower_case: true is not supported of texts that become chats")
    kept = None if scores else read_dimensions(folder)
    return SentenceSettings(mode, layers, kept, scores, normalize, limit, lowercase, prompt, named, chats)


def classifier_settings(folder: Folder) -> SentenceSettings:
    """Read the settings of a model that makes no vectors: of a cross-encoder's folder the length of its texts."""
    members = folder.members(TRANSFORMER_FILES[0])
    return SentenceSettings(max_tokens=_limit(folder, members) if folder.has(MODULES) else None)


def reads_chats(folder: Folder) -> bool:
    """Tell whether texts become messages of a chat, which only models of sentence-transformers say."""
    modalities = folder.members(TRANSFORMER_FILES[0]).get("modality_config")
    return folder.has(MODULES) and isinstance(modalities, dict) and MESSAGE in modalities


def _known_of_chats(folder: Folder) -> Mapping[str, Any]:
    """Return the known members of the file about a transformer that reads chats; of others, no value is supported."""
    members = folder.members(TRANSFORMER_FILES[0])
    modalities, settings = members["modality_config"], members.get("processing_kwargs") or {}
    calls = [{"method": "forward", "method_output_name": name} for name in ("last_hidden_state", "logits")]
    calls += [{**call, "format": name} for call in calls for name in FORMATS]
    return {
        **KNOWN_OF_TRANSFORMER,
        "transformer_task": ("feature-extraction", "sequence-classification", "text-generation"),
        "modality_config": () if all(each in calls for each in modalities.values()) else ({},),
        "module_output_name": ("token_embeddings", "scores", "causal_logits"),
        "processing_kwargs": () if isinstance(settings, dict) and settings.keys() <= {CHAT} else ({},),
    }


def _is_cross_encoder(folder: Folder, modules: Sequence[tuple[str, str]]) -> bool:
    kinds = {TEXT: [], CAUSAL: [SCORE_OF_TOKENS]}
    wanted = next((after for suffix, after in kinds.items() if folder.architecture.endswith(suffix)), None)
    return modules[0] == ("Transformer", "") and [kind for kind, _ in modules[1:]] == wanted


def _check_order(folder: Folder, modules: Sequence[tuple[str, str]]) -> str:
    """Return the folder of the pooling's settings; raises SourceError if the modules compute something else than bundles do."""
    kinds, places = zip(*modules, strict=True)
    later = [kind for kind in kinds[2:] if kind not in LAYERS]
    if kinds[:2] != KINDS[:2] or set(later) - {"Normalize"} or list(kinds[len(kinds) - len(later) :]) != later:
        known = "Transformer, Pooling, any number of Dense and LayerNorm, and then Normalize or nothing"
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


def list_prompts(prompts: Mapping[str, str], default: str = "") -> str:
    """List all prompts but the default one, for the model card; empty if there are none."""
    return ", ".join(f"{name}: {text!r}" for name, text in prompts.items() if text not in {"", default})


def read_dimensions(folder: Folder) -> int | None:
    """Read how many values of each vector are kept; None: all of them."""
    given = folder.members(MODEL_FILE).get("truncate_dim")
    if given is not None and (type(given) is not int or given < 1):
        raise SourceError(f"{folder.path / MODEL_FILE}: truncate_dim: {given!r:.60}, expected a whole number above 0")
    return given


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


def read_layers(folder: Folder, settings: SentenceSettings, width: int) -> nn.Sequential:
    """Read the layers that are applied to a vector of length `width`; raises SourceError if one cannot be read."""
    made = nn.Sequential()
    for kind, place in settings.layers:
        last = settings.scores and len(made) == len(settings.layers) - 1
        layer, width = _dense(folder, place, width, last) if kind == "Dense" else (_norm(folder, place, width), width)
        load_rules(layer, open_weights(folder.path / place), DENSE_RULES if kind == "Dense" else NORM_RULES)
        made.append(layer)
    if settings.dimensions:
        made.append(_FirstValues(settings.dimensions))
    return made


class _FirstValues(nn.Module):
    """Layer that keeps the first values of a vector."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, vectors: Tensor) -> Tensor:
        """`[B, E]` -> `[B, count]`, or as they are if they are not longer."""
        return vectors[..., : self.count]


def _dense(folder: Folder, place: str, width: int, scores: bool) -> tuple[nn.Sequential, int]:
    known = {**KNOWN_OF_DENSE, "module_output_name": (SCORES,)} if scores else KNOWN_OF_DENSE
    members = folder.read_closed(file := f"{place}/{CONFIG}", known) or {}
    name, out = str(members.get("activation_function", "torch.nn.modules.activation.Tanh")), members.get("out_features")
    activations = {IDENTITY: nn.Identity} if scores else ACTIVATIONS
    if name not in activations or type(out) is not int or out < 1:
        known_names = ", ".join(activations)
        problem = f"out_features: {out!r} is no number above 0, or activation_function: {name!r} is none of {known_names}"
        raise SourceError(f"{folder.path / file}: {problem}")
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(width, out, bool(members.get("bias", True))), activations[name]()), out


def _norm(folder: Folder, place: str, width: int) -> nn.Sequential:
    folder.read_closed(f"{place}/{CONFIG}", neutral("dimension"))
    with torch.device("meta"):
        return nn.Sequential(nn.LayerNorm(width))


def prepare_tokenizer(tokenizer: Tokenizer, settings: SentenceSettings) -> None:
    """Let the tokenizer lower-case texts and put the prompt before them, as sentence-transformers does before it.

    Raises:
        SourceError: the tokenizer would put the prompt before each piece of a text.
    """
    added, prompt = tokenizer.get_added_tokens_decoder().values(), "" if settings.chats else settings.prompt
    if prompt and (cutting := [token.content for token in added if not token.special and not token.normalized]):
        problem = f"the added token {cutting[0]!r} cuts texts before the default prompt is added"
        raise SourceError(f"tokenizer: {problem}; save the model without default_prompt_name, and add the prompt to texts")
    first: list[normalizers.Normalizer] = [normalizers.Prepend(prompt)] if prompt else []
    first += [normalizers.Lowercase()] if settings.lowercase else []
    if first:
        tokenizer.normalizer = normalizers.Sequence([*first, *([tokenizer.normalizer] if tokenizer.normalizer else [])])
