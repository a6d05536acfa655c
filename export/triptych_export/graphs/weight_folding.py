"""Weight folding before tracing, so that the graphs have less to compute.

Both functions return a copy that shares all unchanged weights with the original; a few percent change.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.operators import rms_norm
from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.transformer import Transformer

HEAD_MULTIPLE = 8  # GroupQueryAttention requires a multiple of this head size


def head_dim(model: Transformer) -> int:
    """Return the size of a head in the decoder's caches."""
    size = model.config.decoder_block.attention.head_dim
    return size + -size % HEAD_MULTIPLE


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
            _fold(module, module.query_key_value, 3, missing)
        elif isinstance(module, CrossAttention):
            _fold(module, module.query, 1, missing)
            _widen(module.key_value, 2 * module.heads, missing)
    decoder = model.decoder
    if isinstance(decoder.norm, nn.LayerNorm | nn.RMSNorm) and decoder.output_scale != 1.0:
        for name, parameter in list(decoder.norm.named_parameters()):
            setattr(decoder.norm, name, frozen(parameter * decoder.output_scale))
        decoder.output_scale = 1.0
    return model


def fuse_norms(model: Transformer) -> Transformer:
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


def shallow_copy(model: Transformer) -> Transformer:
    """Copy the modules, but not the weights."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def _fold(attention: SelfAttention | CrossAttention, projection: nn.Linear, parts: int, missing: int) -> None:
    """Scale the queries, which are the first part of the projection, and pad all heads."""
    if attention.scale != 1.0:
        factors = torch.ones(parts)
        factors[0] = attention.scale
        factors = factors.repeat_interleave(projection.out_features // parts)
        projection.weight = frozen(projection.weight * factors[:, None])
        if projection.bias is not None:
            projection.bias = frozen(projection.bias * factors)
        attention.scale = 1.0
    _widen(projection, parts * attention.heads, missing)
    if missing:
        output = attention.output
        width = output.in_features // attention.heads
        columns = torch.unflatten(output.weight, 1, (attention.heads, width))
        output.weight = frozen(functional.pad(columns, (0, missing)).flatten(1))
        output.in_features = output.weight.shape[1]


def _widen(projection: nn.Linear, heads: int, missing: int) -> None:
    """Pad each head with outputs that are zero."""
    if not missing:
        return
    rows = torch.unflatten(projection.weight, 0, (heads, -1))
    projection.weight = frozen(functional.pad(rows, (0, 0, 0, missing)).flatten(0, 1))
    if projection.bias is not None:
        projection.bias = frozen(functional.pad(torch.unflatten(projection.bias, 0, (heads, -1)), (0, missing)).flatten())
    projection.out_features = projection.weight.shape[0]


def frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
