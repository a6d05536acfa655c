"""Conversion of a trained checkpoint to CTranslate2, through its public specs API."""

from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec  # type: ignore[import-untyped]
from torch import Tensor, nn

from candidates.ctranslate2_model import TOKENIZER
from triptych_training.checkpoints.translation import Checkpoint
from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.blocks import EncoderLayer, FeedForward
from triptych_training.models.transformer import DecoderLayer

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "silu": common_spec.Activation.SWISH,
}


def convert(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write a CTranslate2 model and its tokenizer to a folder, and return the folder."""
    model, config = checkpoint.model, checkpoint.model.config
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=ACTIVATIONS[config.activation],
    )
    for side, module in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        embedding = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embedding.weight = _array(module.embedding.tokens.weight)
        side.scale_embeddings = True
        side.position_encodings.encodings = _array(module.embedding.positions.weight)
        if config.norm == "pre":
            _norm(side.layer_norm, module.norm)
        for layer_spec, layer in zip(side.layer, module.layers, strict=True):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            _layer(layer_spec, layer)
    spec.decoder.projection.weight = _array(model.projection.weight)
    named = checkpoint.tokenizer.id_to_token
    pieces = [named(index) or f"<unused {index}>" for index in range(config.vocabulary_size)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.decoder_start_token = pieces[config.bos_id]
    spec.config.bos_token, spec.config.eos_token = pieces[config.bos_id], pieces[config.eos_id]
    spec.config.unk_token = pieces[3]
    spec.config.add_source_bos = spec.config.add_source_eos = False  # the tokenizer appends the end
    spec.validate()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    checkpoint.tokenizer.save(str(folder / TOKENIZER))
    return folder


def _layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _self_attention(spec.self_attention, layer.attention, layer.attention_residual.norm)
    if isinstance(layer, DecoderLayer):
        _cross_attention(spec.attention, layer.cross_attention, layer.cross_attention_residual.norm)
    _feedforward(spec.ffn, layer.feedforward, layer.feedforward_residual.norm)


def _self_attention(spec: Any, module: SelfAttention, norm: nn.LayerNorm) -> None:
    _linear(spec.linear[0], module.query_key_value)
    _linear(spec.linear[1], module.output)
    _norm(spec.layer_norm, norm)


def _cross_attention(spec: Any, module: CrossAttention, norm: nn.LayerNorm) -> None:
    _linear(spec.linear[0], module.query)
    _linear(spec.linear[1], module.key_value)
    _linear(spec.linear[2], module.output)
    _norm(spec.layer_norm, norm)


def _feedforward(spec: Any, module: FeedForward, norm: nn.LayerNorm) -> None:
    _linear(spec.linear_0, module.expand)
    _linear(spec.linear_1, module.contract)
    _norm(spec.layer_norm, norm)


def _linear(spec: Any, module: nn.Linear) -> None:
    spec.weight, spec.bias = _array(module.weight), _array(module.bias)


def _norm(spec: Any, module: nn.Module) -> None:
    assert isinstance(module, nn.LayerNorm)
    spec.gamma, spec.beta = _array(module.weight), _array(module.bias)


def _array(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    return tensor.detach().numpy().astype(np.float32)
