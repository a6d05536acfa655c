"""Translation models of CTranslate2: folders of its converters, and unpacked packages of Argos Translate.

What a model computes is found in its variables, whatever it was converted from: OpenNMT, fairseq, Marian or transformers.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor
from torch.nn.functional import pad

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.bart import (
    LANGUAGE_TOKENS,
    MBART_TOKEN,
    m2m100_languages,
    marian_languages,
    mbart_languages,
    start_with_target,
)
from triptych_export.huggingface.architectures.t5 import token_languages
from triptych_export.huggingface.checkpoint.config import check_members
from triptych_export.huggingface.checkpoint.generation import GenerationSettings
from triptych_export.huggingface.checkpoint.languages import CheckpointLanguages, language_tokens, text_to_text
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules, load_rules, make_model
from triptych_export.huggingface.checkpoint.seq2seq import cross_attention_rules, make_source
from triptych_export.huggingface.checkpoint.weights import StoredWeights
from triptych_export.huggingface.ctranslate2_file import NAME, ModelFile
from triptych_export.huggingface.folder import CONFIG, Folder, Members, neutral
from triptych_export.huggingface.tokenizers.fast_tokenizer import NAME as FAST
from triptych_export.huggingface.tokenizers.fast_tokenizer import fast_tokenizer
from triptych_export.huggingface.tokenizers.piece_model import PieceModel, read_piece_model
from triptych_export.huggingface.tokenizers.piece_tokenizer import HIDDEN, Vocabulary, piece_tokenizer
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG as TOKENIZER_CONFIG
from triptych_export.huggingface.tokenizers.special_tokens import read_special_tokens, special_token
from triptych_export.huggingface.tokenizers.tokenizer import TranslationTokenizers, end_texts, token_id, translation_tokenizers
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_text.languages import ARGOS_CODES, UNDETERMINED, is_language
from triptych_training.models.positions import fairseq_sinusoid_table
from triptych_training.models.transformer import Transformer, TransformerConfig

FAMILY = "ctranslate2"
PACKAGE = "metadata.json"  # describes a package of Argos Translate
PACKAGE_MODEL = "model"  # folder of a package's model
PACKAGE_GENERATION = {"beam_size": 4, "length_penalty": 0.2}  # with which Argos Translate translates
LONGEST = 1_024  # tokens of a source, as CTranslate2 limits them unless told otherwise; and of a translation
ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", "gelu_quick")  # by their numbers
PADS = ("<pad>", "<blank>", "[PAD]")
NEVER = -1e4  # logit of tokens that the model does not have
# Single values of a model.bin: with any value, and those with the given one only.
VALUES = neutral(
    """
    num_heads pre_norm activation scale_embeddings multiply_by_sqrt_depth start_from_zero_embedding scale_outputs
    relative_attention_max_distance with_source_bos with_source_eos with_target_bos user_decoder_start_tokens
    alignment_layer alignment_heads alibi_use_positive_positions scale_alibi
    """,
    **dict.fromkeys(("alibi", "multi_query_attention", "embeddings_merge"), (0,)),
    queries_scale=(1,),
)
# Members of config.json; the tokenizers of transformers add what a source needs.
CONFIG_NEUTRAL = neutral(
    "bos_token unk_token", **dict.fromkeys(("add_source_bos", "add_source_eos", "multi_query_attention"), (False,))
)
SHARED = 0.9  # of a vocabulary that its SentencePiece model has at least; special tokens may be missing
DEFAULT_TOKENS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}
SIDES = ("encoder", "decoder")
SOURCE, TARGET = "encoder.embeddings.weight", "decoder.embeddings.weight"
PROJECTION, PROJECTION_BIAS = "decoder.projection.weight", "decoder.projection.bias"
LINEAR = re.compile(r"\.layer_\d+\..*\.linear_\w+\.weight$")
POSITIONS, RELATIVE = "position_encodings.encodings", "self_attention.relative_attention_bias"


@dataclass(frozen=True)
class CTranslate2Folder(Folder):
    """A folder with a model.bin, or an unpacked package of Argos Translate."""

    @property
    def model(self) -> Path:
        """The folder of the model."""
        return self.path if self.has(NAME) else self.path / PACKAGE_MODEL

    @property
    def architecture(self) -> str:
        """The kind of the model, for the card."""
        return f"CTranslate2 {self.file.specification}"

    @cached_property
    def file(self) -> ModelFile:
        """The model.bin."""
        return ModelFile(self.model / NAME)

    @cached_property
    def config(self) -> Members:
        """Members of config.json; older models have flags in model.bin instead."""
        members = Folder(self.model).read_json(CONFIG)
        if members is None:
            flags = self.file.values
            start = "<s>" if flags.get("with_target_bos", True) else "</s>"
            members = {f"add_{name}": bool(flags.get(f"with_{name}")) for name in ("source_bos", "source_eos")}
            members["decoder_start_token"] = None if flags.get("user_decoder_start_tokens") else start
        return Members(members)

    def config_error(self, problem: str) -> SourceError:
        """Make an error about the model's shape or its special tokens."""
        return SourceError(f"{self.model}: {problem}")

    def names(self, side: str) -> list[str]:
        """Read the vocabulary of the "source" or "target", in the order of its ids."""
        paths = [self.model / f"{kind}_vocabulary.{suffix}" for kind in (side, "shared") for suffix in ("json", "txt")]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise self.config_error(f"no vocabulary, expected {' or '.join(path.name for path in paths)}")
        try:
            text = path.read_text(encoding="utf-8")
            names = json.loads(text) if path.suffix == ".json" else _lines(text)
        except (OSError, ValueError) as error:
            raise SourceError(f"{path}: cannot be read: {error}") from error
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise SourceError(f"{path}: not a list of tokens")
        unknown = self.special("unk_token")
        return names if unknown in names else [*names, unknown]

    def special(self, member: str) -> str:
        """Return the token that a member of config.json names."""
        return str(self.config.get(member) or DEFAULT_TOKENS[member])

    def id_of(self, member: str, names: Sequence[str]) -> int:
        """Return the id of the token that a member of config.json names, in a vocabulary."""
        if (token := self.special(member)) not in names:
            raise self.config_error(f"{member}: {token!r:.60} is not in the vocabulary")
        return names.index(token)

    def value(self, name: str, default: float) -> float:
        """Return a value that encoder and decoder have in common; older models have one for both."""
        values = self.file.values
        found = {values.get(f"{side}.{name}", values.get(name, default)) for side in SIDES}
        if len(found) > 1:
            raise self.config_error(f"{name}: different values of encoder and decoder are not supported, {sorted(found)}")
        return found.pop()

    def size(self, name: str, dimension: int = 0) -> int:
        """Return a size of a weight."""
        shape = self.file.shapes.get(name, ())
        if len(shape) <= dimension:
            raise SourceError(f"{self.file.path}: {name} is missing, or has too few dimensions")
        return int(shape[dimension])


def _lines(text: str) -> list[str]:
    """Split a text into lines, which end with carriage returns only if all do."""
    lines = text.removesuffix("\n").split("\n")
    return [line[:-1] for line in lines] if all(line.endswith("\r") for line in lines) else lines


def is_ctranslate2(path: Path) -> bool:
    """Tell whether a folder is a model of CTranslate2, or an unpacked package of Argos Translate."""
    return (CTranslate2Folder(path).model / NAME).is_file()


def load_ctranslate2(folder: CTranslate2Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a translation model; see `CheckpointLanguages.choose` for the languages.

    Raises:
        SourceError: files are missing, damaged or contradict each other, or the model computes something that is not supported.
    """
    sources, targets = folder.names("source"), folder.names("target")
    generation = _generation(folder, sources, targets)
    tokenizers = _tokenizers(folder, sources, targets)
    languages = _languages(folder, tokenizers, targets, generation).choose(source_language, target_language)
    if generation.start is None:
        if not all(frame.forced for frame in languages.targets.values()):
            raise folder.config_error("decoder_start_token: null; name the token with which the decoder starts")
        generation, languages = start_with_target(folder, generation, languages)
    model = _load_model(folder, generation, len(sources), len(targets))
    check_members(folder, CONFIG_NEUTRAL)
    return make_source(folder, model, tokenizers, languages, generation, FAMILY)


def _generation(folder: CTranslate2Folder, sources: Sequence[str], targets: Sequence[str]) -> GenerationSettings:
    """Find the special ids; a model without a token for padding, or that starts with zeros, gets a further one."""
    end = folder.id_of("eos_token", targets)
    free = folder.config.get("decoder_start_token", "") is None
    start = None if free else folder.id_of("decoder_start_token", targets)
    padding = next((sources.index(name) for name in PADS if name in sources), None)
    empty = bool(folder.file.values.get("decoder.start_from_zero_embedding", False))
    if padding is None or empty or padding == end or padding >= len(targets):
        padding = max(len(sources), len(targets))
    members: dict[str, Any] = {}
    if folder.has(PACKAGE):  # where Argos Translate replaces unknown tokens by words of the source, there are none here
        members = {**PACKAGE_GENERATION, "suppressed_tokens": [[folder.id_of("unk_token", targets)]]}
    return GenerationSettings(padding, padding if empty else start, (end,), members, "")


def _tokenizers(folder: CTranslate2Folder, sources: list[str], targets: list[str]) -> TranslationTokenizers:
    """Make the tokenizers: of transformers' files, or of SentencePiece models with the ids of the vocabularies."""
    pair = [folder.model / name for name in ("source.spm", "target.spm")]
    if all(path.is_file() for path in pair):  # Marian's, which always ends texts
        near, far = (read_piece_model(path) for path in pair)
        return _ended(folder, _pieces(folder, near, sources, strips=True), _pieces(folder, far, targets, strips=True))
    if folder.has(TOKENIZER_CONFIG):
        made = translation_tokenizers(folder)
        _check_ids(folder, made.source, sources)
        _check_ids(folder, made.target or made.source, targets)
        return made
    if folder.has(FAST):
        source, target = (fast_tokenizer(folder, read_special_tokens(folder)) for _ in range(2))
        _check_ids(folder, source, sources)
        _check_ids(folder, target, targets)
        frame = source.encode("").ids
        ends = frame[-1:] == [folder.id_of("eos_token", targets)]
        return _ended(folder, source, target, frame[:-1] if ends else frame, ends)
    places = dict.fromkeys((folder.model, folder.path))
    found = [path for place in places for pattern in ("*.model", "*.spm") for path in sorted(place.glob(pattern))]
    if [path.name for path in found] == ["bpe.model"]:
        raise folder.config_error(
            "bpe.model: BPE after Moses' tokenizer is not supported; take a package with sentencepiece.model"
        )
    if len(found) != 1:
        known = "tokenizer.json, or source.spm and target.spm, or one SentencePiece model (*.model)"
        there = ", ".join(path.name for path in found) or "none"
        remedy = "copy them from the model that was converted"
        raise folder.config_error(f"no tokenizer: expected {known}, found {there}; {remedy}")
    model = read_piece_model(found[0])
    pieces = {piece.text for piece in model.pieces}
    for names in (sources, targets):
        if (count := sum(name in pieces for name in names)) < SHARED * len(names):
            problem = f"{found[0].name} has only {count:,} of the vocabulary's {len(names):,} tokens"
            raise folder.config_error(f"{problem}; use the SentencePiece model of the model that was converted")
    source, target = (_pieces(folder, model, names) for names in (sources, targets))
    before = [folder.id_of("bos_token", sources)] if folder.config.get("add_source_bos") else []
    return _ended(folder, source, target, before, bool(folder.config.get("add_source_eos")))


def _pieces(folder: CTranslate2Folder, model: PieceModel, names: list[str], strips: bool = False) -> Tokenizer:
    """Make the tokenizer of a SentencePiece model."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        fault = f"the token {twice[0]!r:.60} is in the vocabulary twice"
        raise folder.config_error(f"{fault}; copy tokenizer.json or tokenizer_config.json from the model that was converted")
    reserved = [folder.special(member) for member in ("unk_token", "bos_token", "eos_token")]
    special = [special_token(name) for name in names if name in (*reserved, *PADS) or LANGUAGE_TOKENS.fullmatch(name)]
    return piece_tokenizer(model, Vocabulary(names, reserved[0], special), strips)


def _ended(
    folder: CTranslate2Folder, source: Tokenizer, target: Tokenizer, before: Sequence[int] = (), ends: bool = True
) -> TranslationTokenizers:
    """Let targets end, and sources if the model's do; it expects the ids `before` them."""
    end = folder.special("eos_token")
    number = token_id(target, folder, end)
    end_texts(target, end, number)
    if ends:
        end_texts(source, end, token_id(source, folder, end))
    else:
        source.post_processor = processors.Sequence([])
    return TranslationTokenizers(source, target, (*before, number))


def _check_ids(folder: CTranslate2Folder, tokenizer: Tokenizer, names: Sequence[str]) -> None:
    """Check that a tokenizer has the ids of the vocabulary."""
    for number, name in enumerate(names):
        token = (tokenizer.id_to_token(number) or name).removeprefix(HIDDEN)
        if token != name:
            problem = f"the tokenizer's token {number:,} is {token!r:.60}, that of the vocabulary {name!r:.60}"
            raise folder.config_error(f"{problem}; use the tokenizer of the model that was converted")


def _languages(
    folder: CTranslate2Folder, tokenizers: TranslationTokenizers, targets: Sequence[str], generation: GenerationSettings
) -> CheckpointLanguages:
    """Read the languages from a package's metadata, the tokenizer's tokens of languages, or the model's name."""
    if folder.has(PACKAGE):
        package = folder.members(PACKAGE)
        codes: list[Any] = [package.get(name) for name in ("from_code", "to_code")]
        if not all(isinstance(code, str) and is_language(code) for code in codes):
            problem = f"expected the codes of two languages, found {codes[0]!r:.60} and {codes[1]!r:.60}"
            raise SourceError(f"{folder.path / PACKAGE}: from_code, to_code: {problem}")
        near, far = (ARGOS_CODES.get(code, code) for code in codes)
        source = SourceFrame(tokenizers.before(folder, generation.ends[0]))
        prefix = package.get("target_prefix") or ""
        if prefix and prefix not in targets:
            raise SourceError(f"{folder.path / PACKAGE}: target_prefix: {prefix!r:.60} is not in the vocabulary")
        target = TargetFrame(forced=(targets.index(prefix),) if prefix else ())
        return CheckpointLanguages({near: source}, {far: target})
    if language_tokens(tokenizers.source, MBART_TOKEN):
        return mbart_languages(folder, tokenizers, generation, None)
    several = m2m100_languages(folder, tokenizers.source, None)
    for found in (several, marian_languages(folder, tokenizers.source, generation)):
        if {*found.sources, *found.targets} != {UNDETERMINED}:
            return found
    before = tokenizers.before(folder, generation.ends[0])
    return token_languages(tokenizers.source, before, generation) or text_to_text(before)


def _load_model(folder: CTranslate2Folder, generation: GenerationSettings, sources: int, targets: int) -> Transformer:
    """Load the weights; `sources` and `targets` are the sizes of the vocabularies."""
    file = folder.file
    _check_values(folder)
    for name, tokens in ((SOURCE, sources), (TARGET, targets)):
        if folder.size(name) != tokens:
            raise folder.config_error(f"{name} has {folder.size(name):,} rows, and the vocabulary {tokens:,} tokens")
    weights = StoredWeights({file.path: _Shard(file, _computed(folder, generation, targets))})
    rows = max(sources, generation.pad + 1), max(targets, generation.pad + 1)
    members: dict[str, Any] = {
        "vocabulary_size": rows[1],
        "source_vocabulary_size": 0 if rows[0] == rows[1] else rows[0],
        "tie_embeddings": file.stored_name(SOURCE) == file.stored_name(TARGET),
        "tie_projection": file.stored_name(PROJECTION) == file.stored_name(TARGET),
        "pad_id": generation.pad,
        "bos_id": generation.start,
        "eos_id": generation.ends[0],
    }
    model = make_model(folder, lambda: Transformer(TransformerConfig(**_members(folder, weights), **members, dropout=0.0)))
    copies = [name for name in file.shapes if file.stored_name(name) != name]  # of a first layer's bias, or tied weights
    load_rules(model, weights, _rules(model.config), (*copies, TARGET, PROJECTION))
    return model


def _check_values(folder: CTranslate2Folder) -> None:
    """Refuse values of model.bin that are not known."""
    for name, value in folder.file.values.items():
        supported = VALUES.get(name.rpartition(".")[2])
        if supported is None or (supported and value not in supported):
            known = f"; supported: {supported[0]}" if supported else ""
            raise folder.config_error(f"{name}: {value} is not supported{known}")


def _members(folder: CTranslate2Folder, weights: StoredWeights) -> dict[str, Any]:
    """Members of TransformerConfig, without those of tokens."""
    file, values = folder.file, folder.file.values
    heads = {side: int(values.get(f"{side}.num_heads", values.get("num_heads", 8))) for side in SIDES}
    first, width = "encoder.layer_0", folder.size("encoder.layer_0.self_attention.linear_1.weight")
    number = int(folder.value("activation", 0))
    if not 0 <= number < len(ACTIVATIONS):
        raise folder.config_error(f"activation: number {number} is not supported; supported: {', '.join(ACTIVATIONS)}")
    layers = {side: sum(f"{side}.layer_{i}.ffn.linear_0.weight" in weights for i in range(len(weights))) for side in SIDES}
    positions = [weights[f"{side}.{POSITIONS}"][0] for side in SIDES if f"{side}.{POSITIONS}" in weights]
    biases = {file.stored_name(name) for name in file.shapes if name.endswith(RELATIVE)}
    norm_kind = "layer" if f"{first}.ffn.layer_norm.bias" in weights else "rms"
    return {
        "model_dim": width,
        "heads": heads["encoder"],
        "decoder_heads": heads["decoder"],
        "head_dim": folder.size(f"{first}.self_attention.linear_1.weight", 1) // max(1, heads["encoder"]),
        "feedforward_dim": folder.size(f"{first}.ffn.linear_0.weight"),
        "decoder_feedforward_dim": folder.size("decoder.layer_0.ffn.linear_0.weight"),
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "norm": "pre" if folder.value("pre_norm", 1) else "post",
        "norm_kind": norm_kind,
        "norm_epsilon": folder.config.get("layer_norm_epsilon") or (1e-5 if norm_kind == "layer" else 1e-6),
        "final_norm": "encoder.layer_norm.weight" in weights,
        "activation": ACTIVATIONS[number],
        "bias": f"{first}.ffn.linear_0.bias" in weights,
        "gated": f"{first}.ffn.linear_0_noact.weight" in weights,
        "positions": "learned" if positions else "none",
        "max_positions": min([LONGEST, *positions]),
        "embedding_norm": "encoder.layernorm_embedding.weight" in weights,
        "scaled_embedding": _scales_embeddings(folder, width),
        "scaled_attention": not any(name.endswith(".queries_scale") for name in values),
        "relative_by_layer": len(biases) > len(SIDES),  # as in umT5; others repeat the first layer's
        "relative_buckets": folder.size(f"{first}.{RELATIVE}") if f"{first}.{RELATIVE}" in weights else 0,
        "relative_distance": int(folder.value("layer_0.self_attention.relative_attention_max_distance", 128)),
        "projection_bias": PROJECTION_BIAS in weights,
        "projection_scale": values.get("decoder.scale_outputs", 1.0),
    }


def _scales_embeddings(folder: CTranslate2Folder, width: int) -> bool:
    old = folder.value("embeddings.multiply_by_sqrt_depth", 1)
    scale = folder.value("scale_embeddings", old)  # true or false if it is a whole number, otherwise a factor
    if isinstance(scale, int):
        return bool(scale)
    if not any(math.isclose(scale, known, rel_tol=1e-5) for known in (1.0, math.sqrt(width))):
        raise folder.config_error(f"scale_embeddings: {scale} is not supported; supported: 1 and the root of {width}")
    return scale != 1.0


def _computed(folder: CTranslate2Folder, generation: GenerationSettings, targets: int) -> Mapping[str, Tensor]:
    """Compute weights that a file lacks: positions, which start at 1 then, biases, and the one that forbids further tokens."""
    made = {}
    shapes = folder.file.shapes
    linears = [name.removesuffix(".weight") for name in shapes if LINEAR.search(name)]
    if any(f"{linear}.bias" in shapes for linear in linears):  # OpenNMT-py has them in some layers only
        made = {f"{linear}.bias": torch.zeros(folder.size(f"{linear}.weight")) for linear in linears}
    for side, embedding in zip(SIDES, (SOURCE, TARGET), strict=True):
        first = f"{side}.layer_0"
        known = (f"{side}.{POSITIONS}", f"{first}.{RELATIVE}", f"{first}.self_attention.relative_position_keys")
        if not any(name in shapes for name in known):
            made[known[0]] = fairseq_sinusoid_table(LONGEST, folder.size(embedding, 1), first=1)
    if generation.pad >= targets and PROJECTION_BIAS not in shapes:
        made[PROJECTION_BIAS] = torch.zeros(targets)
    return made


class _Shard:
    """Weights of a model.bin, and those that it lacks."""

    def __init__(self, file: ModelFile, made: Mapping[str, Tensor]) -> None:
        self._file, self._made = file, made
        self.shapes = {**{name: tensor.shape for name, tensor in made.items()}, **file.shapes}

    def read(self, name: str) -> Tensor:
        return self._file.read(name) if name in self._file.shapes else self._made[name]


def _rules(config: TransformerConfig) -> Sequence[Rule]:
    """Rules of all weights; embeddings get rows of zeros up to the number of sources or targets."""
    rows = {"encoder": config.source_vocabulary_size or config.vocabulary_size, "decoder": config.vocabulary_size}
    rules = [
        Rule("projection.weight", PROJECTION, change=partial(_lengthen, rows=rows["decoder"])),
        Rule("projection.bias", PROJECTION_BIAS, change=partial(_lengthen, rows=rows["decoder"], value=NEVER)),
    ]
    for side, layers in zip(SIDES, (config.encoder_layers, config.decoder_layers), strict=True):
        layer, theirs = f"{side}.layers.{{i}}", f"{side}.layer_{{i}}"
        biases = [f"{side}.layer_{i}.{RELATIVE}" for i in range(layers if config.relative_by_layer else 1)]
        rules += (
            Rule(f"{side}.embedding.tokens.weight", f"{side}.embeddings.weight", change=partial(_lengthen, rows=rows[side])),
            Rule(
                f"{side}.embedding.positions.weight",
                f"{side}.{POSITIONS}",
                change=lambda table: table[: config.max_positions],
            ),
            Rule(f"{side}.embedding.norm", f"{side}.layernorm_embedding"),
            Rule(f"{side}.norm", f"{side}.layer_norm"),
            Rule(f"{side}.relative.table.weight", *biases, join=partial(torch.cat, dim=1)),
            Rule(f"{layer}.feedforward.gate", f"{theirs}.ffn.linear_0"),
            *block_rules(
                layer,
                theirs,
                ("self_attention.linear_0",),
                "self_attention.linear_1",
                "self_attention.layer_norm",
                "ffn.linear_0_noact" if config.gated else "ffn.linear_0",
                "ffn.linear_1",
                "ffn.layer_norm",
            ),
        )
    cross = "decoder.layer_{i}.attention"
    return (
        *rules,
        Rule("decoder.layers.{i}.cross_attention.key_value", f"{cross}.linear_1"),
        *cross_attention_rules(cross, ("linear_0", "", "", "linear_2"), f"{cross}.layer_norm"),
    )


def _lengthen(table: Tensor, rows: int, value: float = 0.0) -> Tensor:
    return table if len(table) > rows else pad(table, (*[0] * (2 * table.dim() - 1), rows - len(table)), value=value)
