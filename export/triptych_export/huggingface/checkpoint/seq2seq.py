"""Shared parts of encoder-decoder checkpoints: settings, tied embeddings, layer rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.generation import GenerationSettings
from triptych_export.huggingface.checkpoint.languages import CheckpointLanguages, model_name
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.weights import StoredWeights
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_export.huggingface.tokenizers.token_limit import limit_tokens
from triptych_export.huggingface.tokenizers.tokenizer import TranslationTokenizers
from triptych_export.translation_source import TranslationSource
from triptych_training.models.transformer import Transformer, TransformerConfig

PREFIX = "model."
LOGITS_BIAS = "final_logits_bias"


@dataclass(frozen=True)
class Embeddings:
    """Tensor names of the three embeddings, in order of precedence.

    Args:
        source: the encoder's.
        target: the decoder's.
        projection: to the vocabulary.
    """

    source: Sequence[str]
    target: Sequence[str]
    projection: Sequence[str]

    @classmethod
    def of(cls, folder: Folder, shared: bool = True, tied: bool | None = None) -> "Embeddings":
        """Find the embeddings by BART's and T5's names; with tied embeddings, any of the names may be the stored one.

        Args:
            folder: the checkpoint's.
            shared: source and target have one vocabulary.
            tied: what is not stored is the same as the others; None: what config.json says.
        """
        encoder, decoder = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
        both, head = "shared.weight", "lm_head.weight"
        tied = bool(folder.config.get("tie_word_embeddings", True)) if tied is None else tied
        if not shared:
            return cls((encoder,), (decoder, head) if tied else (decoder,), (head, decoder) if tied else (head,))
        if not tied:
            return cls((encoder, both), (decoder, both), (head,))
        return cls((encoder, both, decoder, head), (decoder, both, encoder, head), (head, both, decoder, encoder))

    def ties_source(self, weights: StoredWeights) -> bool:
        """Whether source and target share one matrix."""
        return _same(weights, self.source, self.target)

    def ties_projection(self, weights: StoredWeights) -> bool:
        """Whether target and output projection share one matrix."""
        return _same(weights, self.target, self.projection)

    def rules(self, weights: StoredWeights) -> Sequence[Rule]:
        """Rules of the embeddings."""
        places = ("encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight", "projection.weight")
        sides = (self.source, self.target, self.projection)
        return [Rule(place, _plain(weights, names)) for place, names in zip(places, sides, strict=True)]

    @property
    def names(self) -> Sequence[str]:
        """All names under which embeddings may be stored; names that no rule uses are copies."""
        return [f"{prefix}{name}" for name in (*self.source, *self.target, *self.projection) for prefix in ("", PREFIX)]


def bart_rules(embeddings: Sequence[Rule], positions: int = 0) -> Sequence[Rule]:
    """Rules with BART's names, shared by Marian, mBART and M2M100; the first `positions` rows of learned tables are unused."""

    def cut(table: Tensor) -> Tensor:
        return table[positions:]

    sides = [
        rule
        for side in ("encoder", "decoder")
        for rule in (
            Rule(f"{side}.embedding.positions.weight", f"{side}.embed_positions.weight", change=cut),
            Rule(f"{side}.embedding.norm", f"{side}.layernorm_embedding"),
            Rule(f"{side}.norm", f"{side}.layer_norm"),
            *attention_rules(f"{side}.layers.{{i}}", f"{side}.layers.{{i}}.self_attn"),
            Rule(f"{side}.layers.{{i}}.attention_residual.norm", f"{side}.layers.{{i}}.self_attn_layer_norm"),
            Rule(f"{side}.layers.{{i}}.feedforward.expand", f"{side}.layers.{{i}}.fc1"),
            Rule(f"{side}.layers.{{i}}.feedforward.contract", f"{side}.layers.{{i}}.fc2"),
            Rule(f"{side}.layers.{{i}}.feedforward_residual.norm", f"{side}.layers.{{i}}.final_layer_norm"),
        )
    ]
    return (
        *embeddings,
        Rule("projection.bias", LOGITS_BIAS, change=torch.flatten),
        *sides,
        *cross_attention_rules("decoder.layers.{i}", "decoder.layers.{i}.encoder_attn"),
        Rule("decoder.layers.{i}.cross_attention_residual.norm", "decoder.layers.{i}.encoder_attn_layer_norm"),
    )


BART_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def attention_rules(ours: str, theirs: str, names: Sequence[str] = BART_NAMES) -> Sequence[Rule]:
    """Rules of self-attention; `names` are the projections to queries, keys, values and the output."""
    *inputs, output = (f"{theirs}.{name}" for name in names)
    return Rule(f"{ours}.attention.query_key_value", *inputs), Rule(f"{ours}.attention.output", output)


def cross_attention_rules(ours: str, theirs: str, names: Sequence[str] = BART_NAMES) -> Sequence[Rule]:
    """Rules of cross-attention."""
    query, key, value, output = (f"{theirs}.{name}" for name in names)
    return (
        Rule(f"{ours}.cross_attention.query", query),
        Rule(f"{ours}.cross_attention.key_value", key, value),
        Rule(f"{ours}.cross_attention.output", output),
    )


def bart_members(folder: Folder, weights: StoredWeights) -> dict[str, Any]:
    """Members of TransformerConfig that BART-like families read from config.json alike."""
    return {
        "model_dim": whole(folder, "d_model"),
        "heads": whole(folder, "encoder_attention_heads"),
        "feedforward_dim": whole(folder, "encoder_ffn_dim"),
        "encoder_layers": whole(folder, "encoder_layers"),
        "decoder_layers": whole(folder, "decoder_layers"),
        "decoder_heads": whole(folder, "decoder_attention_heads"),
        "decoder_feedforward_dim": whole(folder, "decoder_ffn_dim"),
        "max_positions": whole(folder, "max_position_embeddings"),
        "scaled_embedding": bool(folder.config.get("scale_embedding", False)),
        "projection_bias": has_bias(weights),
    }


def has_bias(weights: StoredWeights) -> bool:
    """Whether the logits have a bias; BART stores one of zeros."""
    return LOGITS_BIAS in weights and bool(weights.tensor(LOGITS_BIAS).any())


def make_model(
    folder: Folder, weights: StoredWeights, config: Mapping[str, Any], rules: Sequence[Rule], ignored: Sequence[str]
) -> Transformer:
    """Make a model and load the checkpoint's weights.

    Args:
        folder: the checkpoint's.
        weights: the checkpoint's.
        config: members of TransformerConfig.
        rules: where the weights come from.
        ignored: patterns of names that are of no use; the bias of the logits is one if the model has none.

    Raises:
        SourceError: config.json and weights do not make a model; names every fault.
    """
    try:
        shape = TransformerConfig(**config, dropout=0.0)
        with torch.device("meta"):
            model = Transformer(shape)
    except (TypeError, ValueError) as error:
        raise SourceError(f"{folder.path / CONFIG}: {error}") from error
    unused = () if shape.projection_bias else (LOGITS_BIAS,)
    load_rules(model, weights, rules, (*ignored, *unused), (PREFIX,))
    return model


def make_source(
    folder: Folder,
    model: Transformer,
    tokenizers: TranslationTokenizers,
    languages: CheckpointLanguages,
    generation: GenerationSettings,
    family: str = "",
) -> TranslationSource:
    """Assemble the translation source; `family` defaults to config.json's `model_type`.

    Raises:
        SourceError: the tokenizer, or a language, has tokens that the model has no vectors for.
    """
    provenance = {"checkpoint": model_name(folder), "architecture": folder.architecture, **languages.notes}
    if generation.left:
        provenance["generation_not_carried_over"] = generation.left
    limit, rows = model.config.max_positions, model.config.vocabulary_size
    tokenizer = limit_tokens(tokenizers.source, model.config.source_vocabulary_size or rows)
    _check_frames(folder, languages, model.config.source_vocabulary_size or rows, rows)
    return TranslationSource(
        model,
        tokenizer,
        languages.sources,
        languages.targets,
        limit,
        limit,
        target_tokenizer=tokenizers.target and limit_tokens(tokenizers.target, rows),
        generation=generation.members,
        splits=languages.splits,
        family=family or folder.model_type,
        provenance=provenance,
    )


def check_architecture(folder: Folder, *supported: str) -> None:
    """Reject classes whose head does not generate text.

    Raises:
        SourceError: says what was found and what is supported.
    """
    if folder.architecture and folder.architecture not in supported:
        names = ", ".join(supported)
        raise SourceError(
            f"{folder.path / CONFIG}: {folder.architecture} is not supported; supported of {folder.model_type}: {names}"
        )


def whole(folder: Folder, name: str, default: int | None = None) -> int:
    """Read a non-negative integer of config.json.

    Raises:
        SourceError: it is missing, or no whole number.
    """
    value = folder.config.get(name)
    value = default if value is None else value
    if type(value) is not int:
        raise SourceError(f"{folder.path / CONFIG}: {name}: {value!r}, expected a whole number")
    return value


def _check_frames(folder: Folder, languages: CheckpointLanguages, source_rows: int, target_rows: int) -> None:
    for code, near in languages.sources.items():
        _check_ids(folder, code, (*near.before, *near.after), source_rows)
    for code, far in languages.targets.items():
        _check_ids(folder, code, far.before, source_rows)
        _check_ids(folder, code, far.forced, target_rows)


def _check_ids(folder: Folder, code: str, ids: Sequence[int], rows: int) -> None:
    if any(number >= rows for number in ids):
        raise SourceError(f"{folder.path}: the token of {code!r} is number {max(ids):,}, and the model has {rows:,} embeddings")


def _same(weights: StoredWeights, first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two tensors are equal."""
    one, other = _stored(weights, first), _stored(weights, second)
    if one is None or other is None or one == other:
        return one == other
    return weights[one] == weights[other] and torch.equal(weights.tensor(one), weights.tensor(other))


def _stored(weights: StoredWeights, names: Sequence[str]) -> str | None:
    return next((prefix + name for name in names for prefix in ("", PREFIX) if prefix + name in weights), None)


def _plain(weights: StoredWeights, names: Sequence[str]) -> str:
    return (_stored(weights, names) or names[0]).removeprefix(PREFIX)
