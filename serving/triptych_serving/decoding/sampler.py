"""Sampling of tokens: temperature, top-k, top-p (nucleus), min-p, then a random draw.

The library of kernels draws, or numpy where it is not installed: from a whole vocabulary that takes 7 to 30 times as long.
"""

import numpy as np
from numpy.typing import NDArray

from triptych_serving.runtime.native.library import native_draw

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW = 256  # values in a row, which are sorted faster than parted (measured)
LIKELIEST = 256  # sorted first for top-p of a whole vocabulary: mostly they contain the nucleus


class Sampler:
    """Draws the tokens of one hypothesis: one random number each, so that other rows never change a draw.

    Args:
        seed: the request's, 0 or above.
        index: number of the hypothesis among those of its text.
    """

    def __init__(self, seed: int, index: int) -> None:
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, index))))
        self._draw = native_draw()

    def choose(
        self, log_probabilities: NDArray[np.floating], temperature: float, topk: int, topp: float, minp: float = 0.0
    ) -> int:
        """Draw an index into `log_probabilities`.

        Args:
            log_probabilities: `[C]` in any order, of all tokens or of at least the `topk` likeliest; logits will do.
            temperature: above 0; divides them.
            topk: number of likeliest tokens to draw from; 0, or more than there are: all.
            topp: draw from the smallest set of likeliest tokens with this probability (Holtzman et al. 2020).
            minp: draw from tokens that are at least this many times as likely as the likeliest (Nguyen et al. 2024).
        """
        if self._draw is not None and log_probabilities.dtype == np.float32 and log_probabilities.flags.c_contiguous:
            return self._draw(log_probabilities, temperature, topk, topp, minp, self._random.random())
        weights = _weights(log_probabilities, temperature)
        kept = _nucleus(weights, topk, topp) if 0 < topk < len(weights) or topp < 1 else None
        if minp > 0:  # the likeliest weighs 1
            kept = np.flatnonzero(weights >= minp) if kept is None else kept[weights[kept] >= minp]
        cumulated = np.cumsum(weights if kept is None else weights[kept])
        index = int(np.searchsorted(cumulated[:-1], self._random.random() * cumulated[-1], side="right"))
        return index if kept is None else int(kept[index])


def _weights(log_probabilities: NDArray[np.floating], temperature: float) -> Floats:
    """Return probabilities scaled so that the likeliest is 1."""
    exact = log_probabilities.astype(np.float64)
    # At a low temperature unlikely tokens overflow to minus infinity, as they should; a broken model's are no numbers.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.exp((exact - exact.max()) / temperature))


def _nucleus(weights: Floats, topk: int, topp: float) -> Ints:
    """Return the indices to draw from, likeliest first; of equals the earlier one."""
    if 0 < topk < len(weights):
        order = likeliest(weights, topk)
        wanted = topp * weights[order].sum()
    else:
        order, wanted = likeliest(weights, LIKELIEST), topp * weights.sum()
        if weights[order].sum() < wanted:
            order = likeliest(weights, len(weights))
    if topp >= 1:
        return order
    return order[: int(np.searchsorted(np.cumsum(weights[order]), wanted)) + 1]


def likeliest(weights: Floats, count: int) -> Ints:
    """Return the indices of each row's highest values, highest first; of equals the earlier one.

    Args:
        weights: `[values]`, or rows of them `[rows, values]`.
        count: number of values.
    """
    if count >= weights.shape[-1] or weights.shape[-1] <= FEW:
        return np.argsort(-weights, kind="stable")[..., :count]
    if weights.ndim > 1:
        return np.array([likeliest(row, count) for row in weights])
    least = np.partition(weights, -count)[-count]
    order = np.flatnonzero(weights >= least)
    return order[np.argsort(-weights[order], kind="stable")[:count]]
