"""Weight folding before tracing, so that the graphs have less to compute.

All functions return a copy that shares all unchanged weights with the original; a few percent change.
"""

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.operators import rms_norm
from triptych_export.onnx_files.decoder import OnnxGpt, OnnxSeq2Seq, Seq2Seq
from triptych_serving.bundle.manifest import DecoderShape
from triptych_training.models.attention import CrossAttention, SelfAttention, SlopedAttention
from triptych_training.models.gpt import ROTARY, SLOPES, Gpt
from triptych_training.models.rnn import Rnn
from triptych_training.models.rotary import RotaryAttention
from triptych_training.models.transformer import Transformer

Module = TypeVar("Module", bound=nn.Module)

HEAD_MULTIPLE = 8  # GroupQueryAttention requires a multiple of this head size
ROTARY_MULTIPLE = 16  # the same with rotary positions
FAR, BLOCK = 2, 64  # dimensions of a head for the position of a key, and positions in a block
INT8_LIMIT = 127  # largest integer in an int8 cache
CACHE_SCALES = "cache_scales"  # attribute of an attention


def head_dim(model: Transformer) -> int:
    """Return the size of a head in the decoder's caches."""
    size = model.config.decoder_block.attention.head_dim
    return size + -size % HEAD_MULTIPLE


def decoder_shape(model: Seq2Seq) -> DecoderShape:
    """Return the shape of the decoder's caches."""
    if isinstance(model, OnnxSeq2Seq):
        return DecoderShape(model.layers, model.heads, model.head_dim)
    if isinstance(model, Rnn):
        return DecoderShape(layers=1, heads=1, head_dim=model.config.model_dim, state_vectors=model.config.state_vectors)
    return DecoderShape(model.config.decoder_layers, model.config.decoder_block.heads, head_dim(model))


@torch.no_grad()
def fold_scales(model: Transformer) -> Transformer:
    """Copy a model with scales folded into the decoder's weights; its results are the same.

    The attention's scale goes into the queries and the projection's into the last norm; heads are padded with zeros to
    `head_dim` dimensions.
    """
    model = shallow_copy(model).eval()
    missing = head_dim(model) - model.config.decoder_block.attention.head_dim
    for module in model.decoder.modules():
        if isinstance(module, SelfAttention):
            _fold(module, module.query_key_value, module.parts, missing)
        elif isinstance(module, CrossAttention):
            width = module.query.out_features
            _fold(module, module.query, (width,), missing)
            _widen(module.key_value, width // module.heads, missing)
    decoder = model.decoder
    if isinstance(decoder.norm, nn.LayerNorm | nn.RMSNorm) and decoder.output_scale != 1.0:
        for name, parameter in list(decoder.norm.named_parameters()):
            setattr(decoder.norm, name, frozen(parameter * decoder.output_scale))
        decoder.output_scale = 1.0
    return model


def cache_head_dim(model: Gpt | OnnxGpt) -> int:
    """Return the size of a head in the caches of a decoder-only model."""
    size = model.config.attention.head_dim
    if isinstance(model, OnnxGpt):
        return size
    size += FAR * (model.config.positions == SLOPES)
    return size + -size % (ROTARY_MULTIPLE if model.config.positions == ROTARY else HEAD_MULTIPLE)


def cache_layers(model: Gpt | OnnxGpt) -> list[int]:
    """Return how many layers of keys and values of attention are as large as the caches of each layer."""
    config = model.config
    numbers = 2 * (config.kv_heads or config.heads) * cache_head_dim(model)  # of a position in a layer
    of_convolution = -(-config.model_dim // numbers)
    return [of_convolution if layer in config.convolution_layers else 1 for layer in range(config.layers)]


@torch.no_grad()
def fold_gpt(model: Gpt) -> Gpt:
    """Copy a decoder-only model with the attention's scale in the queries, and heads padded to `cache_head_dim`.

    They are padded with zeros, but for slopes in the queries and positions in the keys.
    """
    model = shallow_copy(model).eval()
    places = _far_places(model) if model.config.positions == SLOPES else None
    size, missing = model.config.attention.head_dim, cache_head_dim(model) - model.config.attention.head_dim
    for layer in model.blocks:
        if layer.convolution is not None:
            continue
        own = layer.attention
        halves = 1 + isinstance(own, RotaryAttention)
        if own.query_norm is not None and own.key_norm is not None:
            own.query_norm = _fold_head_norm(own.query_norm, own.scale, size, missing, halves)
            own.key_norm = _fold_head_norm(own.key_norm, 1.0, size, missing, halves)
            own.scale = 1.0
        _fold(own, own.query_key_value, own.parts, missing, halves)
        if isinstance(own, SlopedAttention) and places is not None:
            bias = torch.zeros(sum(own.parts)) if own.query_key_value.bias is None else own.query_key_value.bias.clone()
            torch.unflatten(bias[: own.parts[0]], 0, (own.heads, -1))[:, size : size + FAR] = own.slopes[:, None]
            own.query_key_value.bias, own.places = frozen(bias), places
        if isinstance(own, RotaryAttention) and missing and own.rotary.cosines.shape[1] == size // 2:  # one for all layers
            own.rotary.cosines = functional.pad(own.rotary.cosines, (0, missing // 2))
            own.rotary.sines = functional.pad(own.rotary.sines, (0, missing // 2))
    return model


def _far_places(model: Gpt) -> nn.Parameter:
    """Return what is added to keys at all positions, `[T, K*D]`: multiples of a block, and the rest, which float16 can hold."""
    config, size = model.config, cache_head_dim(model)
    table = torch.zeros(config.max_positions, config.kv_heads or config.heads, size)
    numbers, first = torch.arange(config.max_positions)[:, None], config.attention.head_dim
    rest = numbers % BLOCK
    table[:, :, first], table[:, :, first + 1] = (numbers - rest).float(), rest.float()
    return frozen(table.flatten(1))


def set_cache_scales(attention: SelfAttention | CrossAttention, largest: Tensor) -> None:
    """Note the scales of int8 keys and values, given the largest magnitudes of both, `[2*H*D]`."""
    key, value = torch.where(largest > 0, largest / INT8_LIMIT, 1.0).chunk(2)
    setattr(attention, CACHE_SCALES, (key, value))


def cache_scales(attention: SelfAttention | CrossAttention) -> tuple[Tensor, Tensor]:
    """Return the scales of keys and values, `[H*D]` each."""
    return getattr(attention, CACHE_SCALES)


@torch.no_grad()
def fold_cache_scales(model: Transformer) -> Transformer:
    """Copy a model, prepared by `fold_scales`, whose projections of the source give keys and values in units of their scales.

    Then these need only be rounded. The int8 weights stay the same, since a projection's outputs have scales of their own.
    """
    model = shallow_copy(model)
    missing = head_dim(model) - model.config.decoder_block.attention.head_dim
    for module in model.decoder.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            heads = (torch.unflatten(scales, 0, (module.heads, -1)) for scales in cache_scales(module))
            scales = tuple(functional.pad(each, (0, missing), value=1.0).flatten() for each in heads)
            setattr(module, CACHE_SCALES, scales)
            if isinstance(module, CrossAttention):
                units, projection = torch.cat(scales), module.key_value
                projection.weight = frozen(projection.weight / units[:, None])
                if projection.bias is not None:
                    projection.bias = frozen(projection.bias / units)
    return model


def fuse_norms(model: Module) -> Module:
    """Copy a model with one operator per RMS norm; the copy can be traced, but not run."""
    model = shallow_copy(model).eval()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.RMSNorm):
                setattr(parent, name, RmsNorm(child))
    return model


class RmsNorm(nn.Module):
    """RMS norm (Zhang and Sennrich 2019) as one operator, since the runtime does not fuse its parts."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.eps or torch.finfo(torch.float32).eps

    def forward(self, x: Tensor) -> Tensor:
        """`[..., E]` -> `[..., E]`."""
        return rms_norm(x, self.weight, self.epsilon)


def shallow_copy(model: Module) -> Module:
    """Copy the modules, but not the weights."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def _fold(
    attention: SelfAttention | CrossAttention, projection: nn.Linear, parts: Sequence[int], missing: int, halves: int = 1
) -> None:
    """Scale the queries, which are the first of the projection's parts, and pad all heads.

    Rotation pairs the dimensions of two `halves`, each of which is padded.
    """
    size = parts[0] // attention.heads
    if attention.scale != 1.0:
        factors = torch.ones(projection.out_features)
        factors[: parts[0]] = attention.scale
        projection.weight = frozen(projection.weight * factors[:, None])
        if projection.bias is not None:
            projection.bias = frozen(projection.bias * factors)
        attention.scale = 1.0
    _widen(projection, size // halves, missing // halves)
    if missing:
        output = attention.output
        columns = torch.unflatten(output.weight, 1, (-1, size // halves))
        output.weight = frozen(functional.pad(columns, (0, missing // halves)).flatten(1))
        output.in_features = output.weight.shape[1]
        if isinstance(attention, SelfAttention):
            query, key, value = (part // size * (size + missing) for part in attention.parts)
            attention.parts = query, key, value


def _fold_head_norm(norm: nn.RMSNorm, scale: float, size: int, missing: int, halves: int) -> nn.RMSNorm:
    """Copy a norm of heads with a scale and padded dimensions, as in `_fold`; zeros that pad a head lower its mean square."""
    heads, share = len(norm.weight) // size, size / (size + missing)
    folded = nn.RMSNorm(heads * (size + missing), (norm.eps or torch.finfo(torch.float32).eps) * share)
    weight = torch.unflatten(norm.weight * (scale * share**0.5), 0, (heads * halves, -1))
    folded.weight = frozen(functional.pad(weight, (0, missing // halves)).flatten())
    return folded


def _widen(projection: nn.Linear, size: int, missing: int) -> None:
    """Pad each group of `size` outputs with some that are zero."""
    if not missing:
        return
    rows = torch.unflatten(projection.weight, 0, (-1, size))
    projection.weight = frozen(functional.pad(rows, (0, 0, 0, missing)).flatten(0, 1))
    if projection.bias is not None:
        projection.bias = frozen(functional.pad(torch.unflatten(projection.bias, 0, (-1, size)), (0, missing)).flatten())
    projection.out_features = projection.weight.shape[0]


def frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
