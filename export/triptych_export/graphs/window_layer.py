"""Layers of Swin on fused operators: each rearrangement of positions is one Gather.

Padding, roll and cut into windows move whole positions, so together they are a constant list of indices.

Shapes: `B` images, `P` positions of a grid, `W` windows of `N` positions, `H` heads, `E` dimensions of a stage.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.operators import fused_attention
from triptych_training.models.swin import PatchMerging, SwinLayer, Windows


class WindowLayer(nn.Module):
    """Swin layer: attention within windows, then the feed-forward.

    A shifted layer's bias differs from window to window. The operator takes one bias for each head and repeats it for each row:
    there, every head of every window is a head, and rows are images; else rows are windows, which share a small bias.
    """

    order: Tensor  # positions by window
    back: Tensor  # where each position is among them

    def __init__(self, layer: SwinLayer) -> None:
        super().__init__()
        self.layer = layer
        windows, apart = layer.windows, layer.windows.mask()
        self.area = windows.size**2
        self.lanes = 1 if apart is None else windows.count  # windows side by side in a row
        self.heads = self.lanes * layer.attention.heads
        self.bias = nn.Parameter(layer.bias().detach()[None].contiguous())  # [1, H, N, N]
        self.register_buffer("apart", None if apart is None else apart[:, None])  # [W, 1, N, N]
        order = positions_by_window(windows).reshape(-1, self.area)  # [W, N]
        order = (order if apart is None else order.t()).flatten()
        self.pads = bool((order == windows.rows * windows.columns).any())
        self.moves = order.tolist() != list(range(windows.rows * windows.columns))
        self.register_buffer("order", order)
        self.register_buffer("back", torch.argsort(order, stable=True)[: windows.rows * windows.columns])

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P, E]`."""
        frame, attention, last = self.layer.attention_residual, self.layer.attention, self.layer.feedforward_residual
        entered = take(frame.enter(x), self.order, self.pads) if self.moves else frame.enter(x)
        width = self.lanes * entered.shape[-1]
        parts = attention.query_key_value(entered).chunk(3, dim=-1)
        query, key, value = (part.reshape(-1, self.area, width) for part in parts)
        apart = self.get_buffer("apart") if self.lanes > 1 else None
        bias = self.bias if apart is None else (self.bias + apart).flatten(0, 1)[None]  # [1, W*H, N, N]
        context = fused_attention(query, key, value, self.heads, bias=bias).reshape(*entered.shape)
        if self.moves:
            context = torch.index_select(context, 1, self.back)
        x = frame.leave(x, attention.output(context))
        return last.leave(x, self.layer.feedforward(last.enter(x)))


class GatheredMerging(nn.Module):
    """PatchMerging around the checkpoint's own sub-modules."""

    order: Tensor

    def __init__(self, merging: PatchMerging) -> None:
        super().__init__()
        self.norm, self.reduction = merging.norm, merging.reduction
        count = merging.rows * merging.columns
        self.pads = bool(merging.rows % 2 or merging.columns % 2)
        self.register_buffer("order", (merging.gather(_numbers(count)).flatten() - 1) % (count + 1))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P/4, 2E]`."""
        quarters = take(x, self.order, self.pads)
        y: Tensor = self.reduction(self.norm(quarters.reshape(-1, len(self.order) // 4, 4 * x.shape[-1])))
        return y


def positions_by_window(windows: Windows) -> Tensor:
    """Map each place of each window to its position, `[W*N]` int64; P for padding."""
    count = windows.rows * windows.columns
    return (windows.split(_numbers(count)).flatten() - 1) % (count + 1)


def take(x: Tensor, order: Tensor, pads: bool) -> Tensor:
    """Gather positions of `[B, P, E]` by index; index P, if used, gives zeros."""
    return torch.index_select(functional.pad(x, (0, 0, 0, 1)) if pads else x, 1, order)


def _numbers(count: int) -> Tensor:
    """Number the positions from 1, `[1, P, 1]`, so that padding, which is 0, is distinct."""
    return torch.arange(1, count + 1)[None, :, None]
