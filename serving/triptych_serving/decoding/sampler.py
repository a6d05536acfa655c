"""Drawing tokens: temperature, then the k likeliest, then the likeliest that together have probability p, then chance."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIKELIEST = 256  # sorted first where p of a whole vocabulary is wanted: mostly they have it


class Sampler:
    """Draws the tokens of one hypothesis: one random number each, so that nothing but its own past moves a draw.

    Args:
        seed: the request's, 0 or above.
        index: of the hypothesis among those of its text.
    """

    def __init__(self, seed: int, index: int) -> None:
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, index))))

    def choose(self, log_probabilities: NDArray[np.floating], temperature: float, topk: int, topp: float) -> int:
        """Draw one position of `log_probabilities`.

        Args:
            log_probabilities: `[C]` in any order: of all tokens, or of the likeliest, at least `topk` of them. A constant may
                be missing, as in logits.
            temperature: above 0; divides them.
            topk: draw from this many likeliest; 0 or more than there are: from all.
            topp: draw from the fewest likeliest that have at least this part of the probability (Holtzman et al. 2020).
        """
        weights = _weights(log_probabilities, temperature)
        kept = _nucleus(weights, topk, topp) if 0 < topk < len(weights) or topp < 1 else None
        cumulated = np.cumsum(weights if kept is None else weights[kept])
        place = int(np.searchsorted(cumulated, self._random.random() * cumulated[-1], side="right"))
        return place if kept is None else int(kept[place])


def _weights(log_probabilities: NDArray[np.floating], temperature: float) -> Floats:
    """Probabilities but for a common factor; the likeliest has 1."""
    exact = log_probabilities.astype(np.float64)
    with np.errstate(over="ignore"):  # far below the likeliest at a low temperature: minus infinity is right
        return np.asarray(np.exp((exact - exact.max()) / temperature))


def _nucleus(weights: Floats, topk: int, topp: float) -> Ints:
    """Positions to draw from, likeliest first; of equals the earlier one."""
    if 0 < topk < len(weights):
        order = _likeliest(weights, topk)
        wanted = topp * weights[order].sum()
    else:
        order, wanted = _likeliest(weights, LIKELIEST), topp * weights.sum()
        if weights[order].sum() < wanted:
            order = _likeliest(weights, len(weights))
    if topp >= 1:
        return order
    return order[: int(np.searchsorted(np.cumsum(weights[order]), wanted)) + 1]


def _likeliest(weights: Floats, count: int) -> Ints:
    if count >= len(weights):
        return np.argsort(-weights, kind="stable")
    least = np.partition(weights, -count)[-count]
    order = np.flatnonzero(weights >= least)
    return order[np.argsort(-weights[order], kind="stable")[:count]]
