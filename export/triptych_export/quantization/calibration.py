"""Calibration of int8 and int4: the model reads samples, and the inputs of its projections are recorded.

For int8, four steps follow for each of them, so that no row's result depends on other rows:

1. Channels that are much larger than the others are balanced as in SmoothQuant (Xiao et al. 2023): divided by a factor that the
   weights take over. The division costs nothing, since it goes into the layer before: a norm, or the projection that gives the
   values of attention or the inner layer of a feed-forward network. How strongly is chosen by the error of the product; models
   without outliers are left alone.
2. The range is the one with the smallest square error, which may cut off rare large values.
3. Where one scale for all rows is too coarse nonetheless, each row gets its own when it is multiplied, which takes 15-35 % more
   time. In decoder-only models every row does.
4. Weights are rounded one input channel after the other, and those of later channels make up for the error as far as channels
   are correlated (Frantar et al. 2022, GPTQ). It more than makes up for what one scale for all rows loses.

The scales of int8 key-value caches come from the same sentences: one for each channel of each head, up to its largest value.
Of int4, weights are rounded as in the fourth step, to the multiples of a step that each block of channels has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.input_scales import InputScale, set_input_scale
from triptych_export.graphs.weight_folding import Module, cache_head_dim, frozen, set_cache_scales, shallow_copy
from triptych_export.quantization.dynamic import LARGEST
from triptych_export.quantization.four_bit import LEVELS as FOUR_BIT_LEVELS
from triptych_export.quantization.four_bit import is_rounded, round_blocks
from triptych_export.quantization.functions import FOUR_BIT_BLOCK, LEVELS
from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.blocks import EncoderLayer, FeedForward, Residual
from triptych_training.models.gpt import Gpt, GptLayer
from triptych_training.models.transformer import DecoderLayer, Transformer

MOST_ROWS, FEWEST_ROWS = 4_096, 256  # recorded for each projection; fewer of a large model
RECORDED_BYTES = 1 << 30  # of all projections together
OUTLIER = 4.0  # channels this many times larger than the median are balanced
TRIED_ROWS = 512  # to compare strengths of balancing, and one scale with a scale for each row
STRENGTHS = (0.0, 0.25, 0.5, 0.75)  # 0.5 is SmoothQuant's usual exponent
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
CLEAR_GAIN = 0.9  # balance only if it leaves less than this share of the error
DAMPING = 0.01  # of the channels' second moments, relative to their mean
WIDEST = 4_096  # channels; the weights of a wider input are rounded one by one, since the others' correction takes too long
OUTPUTS = 8_192  # rounded at a time, to save memory
COARSE = 1e-3  # share of a product's energy that may be lost with one scale; with 7 bits, the weights cost about 3e-4
TINY = float(torch.finfo(torch.float32).tiny)


@dataclass
class Record:
    """Inputs of one projection: some rows `[N, K]`, and the smallest and largest value of every channel over all rows."""

    rows: Tensor
    low: Tensor
    high: Tensor

    def divided(self, factors: Tensor) -> "Record":
        """Divide each channel by its factor."""
        return Record(self.rows / factors, self.low / factors, self.high / factors)


@dataclass(frozen=True)
class Balance:
    """An input that can be balanced for free: the projections that read it, and the parts of layers that produce it."""

    readers: Sequence[str]
    producers: Sequence[tuple[nn.Module, slice]]  # with the rows of `weight` and `bias` that give this input


@torch.no_grad()
def calibrate(model: Module, samples: Sequence[tuple[Tensor, ...]], weight_bits: int) -> Module:
    """Copy a model for the tracing of int8 graphs: weights balanced and rounded, inputs and caches with scales.

    `samples` are arguments of its calls, in evaluation mode; `weight_bits` as for `quantize`.
    """
    limit = LARGEST[weight_bits]
    records, largest = _record(model, samples)
    result = shallow_copy(model)
    linears = dict(_linears(result))
    names = {module: name for name, module in result.named_modules()}
    for balance in _balances(result):
        readers = [linears[name] for name in balance.readers]
        factors = _choose_factors(records[balance.readers[0]], [reader.weight for reader in readers], limit)
        if factors is not None:
            _apply(balance, readers, factors)
            for name in balance.readers:
                records[name] = records[name].divided(factors)
            for producer, rows in balance.producers:
                if (known := largest.get(names[producer])) is not None:
                    known[rows] /= factors
    for name, linear in linears.items():
        record = records.pop(name)
        # Of a decoder-only model rare tokens have channels a thousand times larger than usual (Sun et al. 2024, massive
        # activations): one scale for all rows loses the others, or cuts these off.
        by_row = isinstance(model, Gpt)
        scale = None if by_row else choose_scale(record, linear.weight, static="query_key_value" in name)
        linear.weight = frozen(round_weights(linear.weight, record.rows, partial(StepGrid, limit=limit)))
        if scale is not None:
            set_input_scale(linear, scale)
    if isinstance(model, Gpt | Transformer) and isinstance(result, Gpt | Transformer):
        _tie_embeddings(model, result)
    for attention, projection in _cached(result):
        width = linears[projection].out_features // (3 if isinstance(attention, SelfAttention) else 2)
        set_cache_scales(attention, largest[projection][-2 * width :])
    return result


@torch.no_grad()
def calibrate_blocks(model: Gpt, samples: Sequence[tuple[Tensor, ...]]) -> Gpt:
    """Copy a decoder-only model for the tracing of int4 graphs: weights are rounded to blocks, which `four_bit` recognizes.

    Arguments as for `calibrate`. The projection to the vocabulary stays as it is, as do weights that were rounded before.
    """
    records, _ = _record(model, samples)
    result = shallow_copy(model)
    for name, linear in blocked_linears(result):
        linear.weight = frozen(round_weights(linear.weight, records.pop(name).rows, BlockGrid))
    return result


def blocked_linears(model: Gpt) -> Iterator[tuple[str, nn.Linear]]:
    """List the projections whose weights `calibrate_blocks` rounds."""
    pads = cache_head_dim(model) != model.config.attention.head_dim  # heads, which moves weights to other blocks
    for name, linear in _linears(model):
        fits = linear.in_features % FOUR_BIT_BLOCK == 0 and not (pads and name.endswith("attention.output"))
        if linear is not model.projection and fits and not is_rounded(linear.weight.detach().numpy()):
            yield name, linear


def _tie_embeddings(model: Gpt | Transformer, result: Gpt | Transformer) -> None:
    """Give embeddings that share the output projection's weights in `model` the rounded ones: graphs store them once."""
    for before, after in zip(model.modules(), result.modules(), strict=True):
        if isinstance(after, nn.Embedding) and before.weight is model.projection.weight:
            after.weight = result.projection.weight


def choose_scale(record: Record, weight: Tensor, static: bool = False) -> InputScale | None:
    """Choose the scale of one input; None: each row gets its own, which `static` excludes for the faster fused attention."""
    scale, rows = _best_range(record), _some(record.rows, TRIED_ROWS)
    if static or (lost := _lost(rows, _round(rows, scale), weight)) <= COARSE:
        return scale
    low, high = rows.amin(1, keepdim=True).clamp_max(0), rows.amax(1, keepdim=True).clamp_min(0)
    steps = ((high - low) / LEVELS).clamp_min(TINY)
    by_row = (rows / steps).round() * steps  # between both, so that nothing is cut off
    return None if _lost(rows, by_row, weight) < 0.5 * lost else scale


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))


def _cached(model: nn.Module) -> Iterator[tuple[SelfAttention | CrossAttention, str]]:
    """List the attentions that may have int8 caches, each with the projection whose last outputs are keys and values."""
    for name, module in model.decoder.named_modules(prefix="decoder") if isinstance(model, Transformer) else ():
        if isinstance(module, SelfAttention | CrossAttention):
            yield module, f"{name}.{'query_key_value' if isinstance(module, SelfAttention) else 'key_value'}"


def _record(model: nn.Module, samples: Sequence[tuple[Tensor, ...]]) -> tuple[dict[str, Record], dict[str, Tensor]]:
    """Run the model over all samples; record what its projections read, and the largest outputs of those with caches."""
    linears = dict(_linears(model))
    budget = RECORDED_BYTES // (4 * sum(linear.in_features for linear in linears.values()))
    share = -(-max(FEWEST_ROWS, min(MOST_ROWS, budget)) // len(samples))  # rows of one sample
    parts: dict[str, list[Tensor]] = {name: [] for name in linears}
    low: dict[str, Tensor] = {}
    high: dict[str, Tensor] = {}
    largest = {name: torch.zeros(linears[name].out_features) for _, name in _cached(model)}

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def note(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            if name in largest:
                largest[name] = torch.maximum(largest[name], output.flatten(0, -2).abs().amax(0))
            rows = arguments[0].flatten(0, -2)
            least, most = rows.amin(0), rows.amax(0)
            low[name] = torch.minimum(low.get(name, least), least)
            high[name] = torch.maximum(high.get(name, most), most)
            parts[name].append(_some(rows, share).clone())

        return note

    with ExitStack() as hooks:
        for name, linear in linears.items():
            hooks.enter_context(linear.register_forward_hook(hook(name)))
        for sample in samples:
            model(*sample)
    return {name: Record(torch.cat(parts.pop(name)), low[name], high[name]) for name in linears}, largest


def _balances(model: nn.Module) -> Iterator[Balance]:
    """List the inputs that can be balanced. Not the output projection's: its weights may be the embedding, too."""
    names: Mapping[nn.Module, str] = {module: name for name, module in model.named_modules()}

    def residual(frame: nn.Module, *readers: nn.Module | None) -> Iterator[Balance]:
        if isinstance(frame, Residual) and frame.pre_norm and not isinstance(frame.norm, nn.Identity):
            yield Balance([names[reader] for reader in readers if reader is not None], [(frame.norm, slice(None))])

    for module in model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            convolution = module.convolution if isinstance(module, GptLayer) else None
            reader = module.attention.query_key_value if convolution is None else convolution.project
            yield from residual(module.attention_residual, reader)
            yield from residual(module.feedforward_residual, module.feedforward.expand, module.feedforward.gate)
        if isinstance(module, DecoderLayer):
            yield from residual(module.cross_attention_residual, module.cross_attention.query)
        if isinstance(module, SelfAttention) and module.kv_heads == module.heads:
            yield Balance([names[module.output]], [(module.query_key_value, slice(-module.output.in_features, None))])
        if isinstance(module, CrossAttention):
            yield Balance([names[module.output]], [(module.key_value, slice(-module.output.in_features, None))])
        if isinstance(module, FeedForward) and (module.gate is not None or module.activation is functional.relu):
            yield Balance([names[module.contract]], [(module.expand, slice(None))])
    if isinstance(model, Transformer) and not isinstance(model.encoder.norm, nn.Identity):
        keys = [names[layer.cross_attention.key_value] for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        yield Balance(keys, [(model.encoder.norm, slice(None))])


def _choose_factors(record: Record, weights: Sequence[Tensor], limit: int) -> Tensor | None:
    """Choose the factor of every channel `[K]`; None: balancing is not needed or does not help."""
    largest = torch.maximum(record.high, -record.low).clamp_min(TINY)
    if largest.max() < OUTLIER * largest.median():
        return None
    of_weights = torch.stack([weight.abs().amax(0) for weight in weights]).amax(0).clamp_min(TINY)
    ratio = (largest / of_weights).log2()
    candidates = [(strength * (ratio - ratio.median())).clamp(-24, 24).exp2() for strength in STRENGTHS]
    part = Record(_some(record.rows, TRIED_ROWS), record.low, record.high)
    errors = [sum(_product_error(part, factors, weight, limit) for weight in weights) for factors in candidates]
    best = min(range(len(candidates)), key=errors.__getitem__)
    return candidates[best] if errors[best] < CLEAR_GAIN * errors[0] else None


def _product_error(record: Record, factors: Tensor, weight: Tensor, limit: int) -> float:
    """Share of the product's energy that is lost if input and weights are quantized after balancing."""
    balanced, weight = record.divided(factors), weight * factors
    found = _round(balanced.rows, _best_range(balanced)) @ _rounded(weight, _steps(weight, limit)).T
    return _share(found - balanced.rows @ weight.T, balanced.rows @ weight.T)


class Grid(Protocol):
    """Rounds the weights of a projection, one input channel after the other."""

    together: int  # channels that are rounded before all later ones are corrected

    def rounded(self) -> Tensor:
        """Round each weight by itself, `[N, K]`."""

    def begin(self, weights: Tensor) -> None:
        """Fit the grid to the next channels, `[together, N]`."""

    def round(self, channel: int, weights: Tensor) -> Tensor:
        """Round the weights of a channel, `[N]`."""


class StepGrid:
    """Multiples of one step for each output of `[N, K]` weights, whose largest one is exactly `limit` steps."""

    together = 128

    def __init__(self, weight: Tensor, limit: int) -> None:
        self._weight, self._limit, self._steps = weight, limit, _steps(weight, limit)
        self._peaks = weight.abs().argmax(1)  # stay as they are, so that the steps can be told from the result

    def rounded(self) -> Tensor:
        return _rounded(self._weight, self._steps)

    def begin(self, weights: Tensor) -> None:
        pass

    def round(self, channel: int, weights: Tensor) -> Tensor:
        step = self._steps[:, 0]
        rounded = (weights / step).round().clamp(-self._limit, self._limit) * step
        return torch.where(self._peaks == channel, self._weight[:, channel].sign() * self._limit * step, rounded)


class BlockGrid:
    """Sixteen values at equal distances for each block of channels of each output, one of them 0."""

    together = FOUR_BIT_BLOCK

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def rounded(self) -> Tensor:
        return torch.from_numpy(round_blocks(self._weight.numpy())[0])

    def begin(self, weights: Tensor) -> None:
        _, scales, zeros = round_blocks(weights.T.numpy())
        self._scale, self._zero = torch.from_numpy(scales[:, 0]), torch.from_numpy(zeros[:, 0])

    def round(self, channel: int, weights: Tensor) -> Tensor:
        integers = (weights / self._scale + self._zero).round().clamp(0, FOUR_BIT_LEVELS)
        return (integers - self._zero) * self._scale


def round_weights(weight: Tensor, rows: Tensor, make_grid: Callable[[Tensor], Grid]) -> Tensor:
    """Round `[N, K]` weights.

    Corrected weights are taken where their products are better than those of plain rounding, on rows that did not correct them.
    """
    factor = None if weight.shape[1] > WIDEST else _inverse_factor(rows[::2])
    result = torch.empty_like(weight)
    for exact, rounded in zip(torch.split(weight, OUTPUTS), torch.split(result, OUTPUTS), strict=True):
        grid = make_grid(exact)
        rounded.copy_(grid.rounded())
        if factor is not None:
            corrected = _correct(exact, grid, factor)
            better = _errors(corrected - exact, rows[1::2]) < _errors(rounded - exact, rows[1::2])
            rounded[better] = corrected[better]
    return result


def _errors(difference: Tensor, rows: Tensor) -> Tensor:
    """Square error of the product of each output, `[N]`, with weights that are so much too large."""
    return (rows @ difference.T).square().sum(0)


def _inverse_factor(rows: Tensor) -> Tensor:
    """Upper Cholesky factor of the inverse of the channels' second moments, `[K, K]`."""
    moments = (rows.T @ rows).double()
    mean = moments.diagonal().mean().clamp_min(TINY)
    moments.diagonal().add_(DAMPING * mean)
    # The moments are V V^T with an upper V, so that their inverse has the factor V^-1.
    upper = torch.linalg.cholesky(moments.flip(0, 1)).flip(0, 1).float()
    factor: Tensor = torch.linalg.solve_triangular(upper, torch.eye(len(upper)), upper=True)
    return factor


def _correct(weight: Tensor, grid: Grid, factor: Tensor) -> Tensor:
    """Round the channels of `[N, K]` weights in turn; each error is passed on to the later ones."""
    rest = weight.T.contiguous()  # transposed: a channel is a row of memory
    result = torch.empty_like(rest)
    for start in range(0, len(rest), grid.together):
        stop = min(start + grid.together, len(rest))
        errors = torch.empty(stop - start, rest.shape[1])
        grid.begin(rest[start:stop])
        for channel in range(start, stop):
            result[channel] = grid.round(channel, rest[channel])
            errors[channel - start] = error = (rest[channel] - result[channel]) / factor[channel, channel]
            rest[channel + 1 : stop].addr_(factor[channel, channel + 1 : stop], error, alpha=-1)
        rest[stop:].addmm_(factor[start:stop, stop:].T, errors, alpha=-1)
    return result.T


def _apply(balance: Balance, readers: Sequence[nn.Linear], factors: Tensor) -> None:
    for producer, rows in balance.producers:
        for name, parameter in list(producer.named_parameters(recurse=False)):
            changed = parameter.clone()
            changed[rows] /= factors.view(-1, *[1] * (parameter.dim() - 1))
            setattr(producer, name, frozen(changed))
    for reader in readers:
        reader.weight = frozen(reader.weight * factors)


def _best_range(record: Record) -> InputScale:
    """Choose the range with the smallest square error; 0 is always exact."""
    low, high = min(0.0, float(record.low.min())), max(0.0, float(record.high.max()))
    if low == high:
        return InputScale(1.0, 0)
    scales = [(high * shrink - low * shrink) / LEVELS for shrink in SHRINKS]
    candidates = [InputScale(scale, round(-low * shrink / scale)) for shrink, scale in zip(SHRINKS, scales, strict=True)]
    errors = [float((_round(record.rows, scale) - record.rows).square().sum()) for scale in candidates]
    return candidates[min(range(len(candidates)), key=errors.__getitem__)]


def _round(rows: Tensor, scale: InputScale) -> Tensor:
    """Quantize and restore."""
    return ((rows / scale.scale).round() + scale.zero_point).clamp(0, LEVELS).sub(scale.zero_point) * scale.scale


def _some(rows: Tensor, most: int) -> Tensor:
    """Take evenly spaced rows, at most so many."""
    return rows[:: -(-len(rows) // most)]


def _steps(weight: Tensor, limit: int) -> Tensor:
    """Step of each output's weights, `[N, 1]`."""
    return weight.abs().amax(1, keepdim=True).clamp_min(limit * TINY) / limit


def _rounded(weight: Tensor, steps: Tensor) -> Tensor:
    return (weight / steps).round() * steps


def _lost(rows: Tensor, rounded: Tensor, weight: Tensor) -> float:
    """Share of the product's energy that rounding its input loses."""
    parts = torch.split(weight, OUTPUTS)
    lost, whole = (sum(float((each @ part.T).square().sum()) for part in parts) for each in (rounded - rows, rows))
    return lost / max(TINY, whole)


def _share(error: Tensor, whole: Tensor) -> float:
    return float(error.square().sum() / whole.square().sum().clamp_min(TINY))
