"""Shared parts of encoder-decoder checkpoints: settings, tied embeddings, layer rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.config import ENCODER_DECODER, activation, integer
from triptych_export.huggingface.checkpoint.generation import GenerationSettings
from triptych_export.huggingface.checkpoint.languages import CheckpointLanguages, model_name
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules, load_rules, make_model
from triptych_export.huggingface.checkpoint.weights import StoredWeights
from triptych_export.huggingface.folder import Folder, neutral
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG as TOKENIZER_CONFIG
from triptych_export.huggingface.tokenizers.tokenizer import TranslationTokenizers, limit_tokens
from triptych_export.onnx_files.decoder import OnnxSeq2Seq
from triptych_export.translation_source import TranslationSource
from triptych_training.models.positions import SinusoidalPositions
from triptych_training.models.transformer import Transformer, TransformerConfig

PREFIX = "model."
LOGITS_BIAS = "final_logits_bias"
CLEANS_UP = "clean_up_tokenization_spaces"  # removes the spaces before punctuation and English contractions in outputs
# Most are fairseq's; transformers' classes ignore them, whatever their values.
BART_NEUTRAL = {
    **ENCODER_DECODER,
    **neutral(
        """
        num_hidden_layers normalize_before normalize_embedding add_final_layer_norm
        add_bias_logits static_position_embeddings extra_pos_embeddings do_blenderbot_90_layernorm
        replacing_rate student_encoder_layers student_decoder_layers
        """
    ),
}
BART_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


@dataclass(frozen=True)
class Embeddings:
    """Tensor names of the three embeddings, in order of precedence."""

    source: Sequence[str]  # names of the encoder's embedding
    target: Sequence[str]  # names of the decoder's embedding
    projection: Sequence[str]  # names of the output projection
    shared: bool = True  # whether source and target have one vocabulary

    @classmethod
    def of(cls, folder: Folder, shared: bool = True, tied: bool | None = None) -> "Embeddings":
        """Find the embeddings by BART's and T5's names, with one vocabulary for source and target or two.

        With `tied` embeddings (None: as config.json says), any of the names may be the stored one.
        """
        encoder, decoder = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
        both, head = "shared.weight", "lm_head.weight"
        tied = bool(folder.config.get("tie_word_embeddings", True)) if tied is None else tied
        if not shared:
            return cls((encoder,), (decoder, head) if tied else (decoder,), (head, decoder) if tied else (head,), shared)
        if not tied:
            return cls((encoder, both), (decoder, both), (head,))
        return cls((encoder, both, decoder, head), (decoder, both, encoder, head), (head, both, decoder, encoder))

    def rules(self, weights: StoredWeights) -> Sequence[Rule]:
        """Rules of the embeddings."""
        places = ("encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight", "projection.weight")
        sides = (self.source, self.target, self.projection)
        return [Rule(place, _plain(weights, names)) for place, names in zip(places, sides, strict=True)]

    @property
    def names(self) -> Sequence[str]:
        """All names under which embeddings may be stored; names that no rule uses are copies."""
        return [f"{prefix}{name}" for name in (*self.source, *self.target, *self.projection) for prefix in ("", PREFIX)]


def bart_rules(positions: int = 0) -> Sequence[Rule]:
    """Rules with BART's names, shared by Marian, mBART and M2M100; the first `positions` rows of learned tables are unused."""
    *inputs, output = (f"self_attn.{name}" for name in BART_PROJECTIONS)
    rules = [Rule("projection.bias", LOGITS_BIAS, change=torch.flatten)]
    for side in ("encoder", "decoder"):
        layer = f"{side}.layers.{{i}}"
        rules += (
            Rule(f"{side}.embedding.positions.weight", f"{side}.embed_positions.weight", change=lambda t: t[positions:]),
            Rule(f"{side}.embedding.norm", f"{side}.layernorm_embedding"),
            Rule(f"{side}.norm", f"{side}.layer_norm"),
            *block_rules(layer, layer, inputs, output, "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"),
        )
    return (
        *rules,
        *cross_attention_rules(
            "decoder.layers.{i}.encoder_attn", BART_PROJECTIONS, "decoder.layers.{i}.encoder_attn_layer_norm"
        ),
    )


def cross_attention_rules(theirs: str, projections: Sequence[str], norm: str) -> Sequence[Rule]:
    """Rules of cross-attention and its norm; `projections` names those to queries, keys, values and the output."""
    ours, (query, key, value, output) = "decoder.layers.{i}", (f"{theirs}.{name}" for name in projections)
    return (
        Rule(f"{ours}.cross_attention.query", query),
        Rule(f"{ours}.cross_attention.key_value", key, value),
        Rule(f"{ours}.cross_attention.output", output),
        Rule(f"{ours}.cross_attention_residual.norm", norm),
    )


def bart_members(folder: Folder, weights: StoredWeights, default_activation: str = "gelu") -> dict[str, Any]:
    """Members of TransformerConfig that BART-like families read from config.json alike."""
    return {
        "vocabulary_size": integer(folder, "vocab_size"),
        "model_dim": integer(folder, "d_model"),
        "heads": integer(folder, "encoder_attention_heads"),
        "feedforward_dim": integer(folder, "encoder_ffn_dim"),
        "encoder_layers": integer(folder, "encoder_layers"),
        "decoder_layers": integer(folder, "decoder_layers"),
        "decoder_heads": integer(folder, "decoder_attention_heads"),
        "decoder_feedforward_dim": integer(folder, "decoder_ffn_dim"),
        "max_positions": integer(folder, "max_position_embeddings"),
        "activation": activation(folder, "activation_function", default_activation),
        "scaled_embedding": bool(folder.config.get("scale_embedding", False)),
        # BART stores a bias of zeros, which need not be exported.
        "projection_bias": LOGITS_BIAS in weights and bool(weights.tensor(LOGITS_BIAS).any()),
    }


def load_model(
    folder: Folder,
    weights: StoredWeights,
    config: Mapping[str, Any],
    generation: GenerationSettings,
    embeddings: Embeddings,
    rules: Sequence[Rule],
    ignored: Sequence[str],
) -> Transformer:
    """Make a model and load the checkpoint's weights: the embeddings, and by `rules` all others but those `ignored`.

    `config` has members of TransformerConfig, without tied embeddings and special ids, which `generation` holds.

    Raises:
        SourceError: config.json and weights contradict each other; lists every fault.
    """
    members = {
        **config,
        "tie_embeddings": embeddings.shared and _same(weights, embeddings.source, embeddings.target),
        "tie_projection": _same(weights, embeddings.target, embeddings.projection),
        "pad_id": generation.pad,
        "bos_id": generation.start,
        "eos_id": generation.ends[0],
    }
    model = make_model(folder, lambda: Transformer(TransformerConfig(**members, dropout=0.0)))
    unused = () if model.config.projection_bias else (LOGITS_BIAS,)
    load_rules(model, weights, (*embeddings.rules(weights), *rules), (*ignored, *embeddings.names, *unused), (PREFIX,))
    for side in ("encoder", "decoder"):
        positions, name = getattr(model, side).embedding.positions, _stored(weights, [f"{side}.embed_positions.weight"])
        table = weights.tensor(name) if name and isinstance(positions, SinusoidalPositions) else None
        if table is not None and table.shape == positions.weight.shape:
            positions.weight = table  # transformers reads them, too: in half precision they are rounded
    return model


def make_source(
    folder: Folder,
    model: Transformer | OnnxSeq2Seq,
    tokenizers: TranslationTokenizers,
    languages: CheckpointLanguages,
    generation: GenerationSettings,
    family: str = "",
) -> TranslationSource:
    """Assemble the translation source; `family` defaults to config.json's `model_type`.

    Raises:
        SourceError: the tokenizer, a language or a suppressed token has an id beyond the model's embeddings, or outputs would
            begin with their end.
    """
    provenance = {"checkpoint": model_name(folder), "architecture": folder.architecture, **languages.notes}
    if generation.unsupported:
        provenance["generation_not_carried_over"] = generation.unsupported
    if folder.members(TOKENIZER_CONFIG).get(CLEANS_UP):  # a stream could not take back the spaces that this removes
        provenance["decoding_not_carried_over"] = f"{CLEANS_UP} = True"
    if omitted := _omitted(tokenizers.target or tokenizers.source, languages):
        provenance["forced_tokens_not_in_texts"] = omitted
    limit, rows = model.config.max_positions, model.config.vocabulary_size
    tokenizer = limit_tokens(tokenizers.source, model.config.source_vocabulary_size or rows)
    source_rows = model.config.source_vocabulary_size or rows
    for code, near in languages.sources.items():
        _check_ids(folder, code, (*near.before, *near.after), source_rows)
    for code, far in languages.targets.items():
        _check_ids(folder, code, far.before, source_rows)
        _check_ids(folder, code, far.forced, rows)
        if generation.ends[0] in far.forced:
            raise SourceError(f"{folder.path}: forced_bos_token_id: {generation.ends[0]} is the end of the sentence; remove it")
    generation.check_suppressed(folder, rows)
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


def _omitted(tokenizer: Tokenizer, languages: CheckpointLanguages) -> str:
    """Name the forced tokens that transformers writes into a text; serving returns what follows them."""
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    forced = dict.fromkeys(number for frame in languages.targets.values() for number in frame.forced)
    return ", ".join(repr(tokenizer.id_to_token(number)) for number in forced if number not in special)


def _check_ids(folder: Folder, code: str, ids: Sequence[int], rows: int) -> None:
    if any(number >= rows for number in ids):
        raise SourceError(f"{folder.path}: the token of {code!r} is number {max(ids):,}, and the model has {rows:,} embeddings")


def _same(weights: StoredWeights, first: Sequence[str], second: Sequence[str]) -> bool:
    """Tell whether two tensors are equal."""
    one, other = _stored(weights, first), _stored(weights, second)
    if one is None or other is None or one == other:
        return one == other
    return weights[one] == weights[other] and torch.equal(weights.tensor(one), weights.tensor(other))


def _stored(weights: StoredWeights, names: Sequence[str]) -> str | None:
    return next((prefix + name for name in names for prefix in ("", PREFIX) if prefix + name in weights), None)


def _plain(weights: StoredWeights, names: Sequence[str]) -> str:
    return (_stored(weights, names) or names[0]).removeprefix(PREFIX)
