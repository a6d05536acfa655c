"""`transformers` with the same weights: `generate`, fp16, scaled dot-product attention.

A model whose layers begin with their norms becomes an M2M100, one whose layers end with them a Marian model; both have fixed
tables of positions, into which ours are written.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from candidates.candidate import Answer, Candidate, Decoding, answers_of
from triptych_training.checkpoints.translation import Checkpoint
from triptych_training.data.batches import pad
from triptych_training.models.transformer import Transformer, TransformerConfig

NAMES = {  # ours: theirs
    "attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feedforward_residual.norm": "final_layer_norm",
    "feedforward.expand": "fc1",
    "feedforward.contract": "fc2",
    "attention.output": "self_attn.out_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention.query": "encoder_attn.q_proj",
}
FUSED = {  # ours: theirs, of the rows one after the other
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}


class HuggingFaceModel(Candidate):
    """A call is one padded batch.

    Args:
        checkpoint: whose weights are copied.
        device: "cuda", "cuda:1", or "cpu", where fp32 is kept.

    Raises:
        ValueError: no model of `transformers` has this shape.
    """

    name, family = "transformers", "transformers"

    def __init__(self, checkpoint: Checkpoint, device: str) -> None:
        self._device, self._tokenizer = torch.device(device), checkpoint.tokenizer
        self._config = checkpoint.model.config
        model = convert(checkpoint.model).eval()
        self._model: Any = model.to(self._device, torch.float16) if self._device.type == "cuda" else model.to(self._device)
        self.settings = f"{type(model).__name__}, SDPA"

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        config = self._config
        encodings = self._tokenizer.encode_batch(list(texts))
        source = pad([encoding.ids for encoding in encodings], config.pad_id).to(self._device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=source,
                attention_mask=(source != config.pad_id).long(),
                num_beams=decoding.beam,
                length_penalty=1.0,
                do_sample=False,
                min_new_tokens=decoding.least,
                max_new_tokens=decoding.limit,
            )
        return answers_of(self._tokenizer, output[:, 1:].tolist(), config.eos_id)


def convert(model: Transformer) -> torch.nn.Module:
    """A model of `transformers` that computes the same.

    Raises:
        ValueError: there is none; names the members that stand in the way.
    """
    config = model.config
    if odd := list(_odd(config)):
        raise ValueError(f"transformers has no such model: {', '.join(odd)}")
    target: Any = _make(config)
    theirs = dict(_named(model))
    missing, unexpected = target.load_state_dict(theirs, strict=False)
    left = [name for name in missing if "embed_positions" not in name and "final_logits_bias" not in name]
    assert not left, left
    assert not unexpected, unexpected
    for side, ours in (("encoder", model.encoder), ("decoder", model.decoder)):
        table = ours.embedding.positions
        assert table is not None
        _put(getattr(target.model, side).embed_positions, table.weight, config.pad_id)
    return target  # type: ignore[no-any-return]


def _odd(config: TransformerConfig) -> Iterator[str]:
    """Reject properties that neither architecture has."""
    wanted = {"tie_embeddings": True, "ties_source": True, "ties_projection": True, "norm_kind": "layer", "norm_epsilon": 1e-5}
    wanted |= {"gated": False, "bias": True, "scaled_attention": True, "embedding_norm": False, "projection_bias": False}
    wanted |= {"projection_scale": 1.0, "relative_buckets": 0, "head_dim": 0, "ends_with_norm": config.norm == "pre"}
    yield from (f"{name} is {getattr(config, name)}" for name, value in wanted.items() if getattr(config, name) != value)
    if config.positions == "none":
        yield "positions is none"


def _make(config: TransformerConfig) -> torch.nn.Module:
    from transformers import M2M100Config, M2M100ForConditionalGeneration, MarianConfig, MarianMTModel

    block = config.decoder_block
    members: dict[str, Any] = {
        "vocab_size": config.vocabulary_size,
        "d_model": config.model_dim,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": block.heads,
        "encoder_ffn_dim": config.feedforward_dim,
        "decoder_ffn_dim": block.feedforward_dim,
        "activation_function": config.activation,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": config.scaled_embedding,
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        "forced_eos_token_id": None,
        "attn_implementation": "sdpa",
        "tie_word_embeddings": True,
    }
    if config.norm == "pre":
        return M2M100ForConditionalGeneration(M2M100Config(**members))
    return MarianMTModel(MarianConfig(decoder_vocab_size=config.vocabulary_size, **members))


def _named(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Weights by their names there; tables of positions are left out."""
    matrix = model.encoder.embedding.tokens.weight
    yield from ((name, matrix) for name in ("model.shared.weight", "lm_head.weight"))
    for side, module in (("encoder", model.encoder), ("decoder", model.decoder)):
        yield f"model.{side}.embed_tokens.weight", matrix
        if isinstance(module.norm, torch.nn.LayerNorm):
            yield from ((f"model.{side}.layer_norm.{kind}", value) for kind, value in module.norm.named_parameters())
        for index, layer in enumerate(module.layers):
            prefix = f"model.{side}.layers.{index}"
            for name, value in layer.named_parameters():
                place, _, kind = name.rpartition(".")
                if place in FUSED:
                    parts = value.chunk(len(FUSED[place]))
                    yield from ((f"{prefix}.{part}.{kind}", rows) for part, rows in zip(FUSED[place], parts, strict=True))
                else:
                    yield f"{prefix}.{NAMES[place]}.{kind}", value


@torch.no_grad()
def _put(embedding: Any, table: Tensor, pad_id: int) -> None:
    """M2M100 finds position 0 behind the padding's row, Marian in row 0."""
    first = pad_id + 1 if hasattr(embedding, "make_weights") else 0
    weights = embedding.weights if hasattr(embedding, "weights") else embedding.weight
    weights[first : first + len(table)] = table
