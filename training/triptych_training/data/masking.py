"""Masked language modelling: which tokens are hidden, and behind what (Devlin et al. 2018, section 3.1)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the chosen tokens; the rest stay as they are


@dataclass(frozen=True)
class Masker:
    """Chooses anew at every call ("dynamic masking"; Liu et al. 2019).

    Args:
        share: of a row's text that is to be predicted.
        mask_id: the id of [MASK].
        first_id: ids from here on up are text: special tokens come first and are never drawn.
        vocabulary_size: ids are below it.
    """

    share: float
    mask_id: int
    first_id: int
    vocabulary_size: int

    def count(self, tokens: int) -> int:
        """How many of a row's `tokens` are to be predicted: at least one."""
        return max(1, round(self.share * tokens))

    def mask(self, ids: NDArray[np.int64], text: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Hide tokens of the row `ids`, in place; returns the places, ascending.

        Args:
            ids: `[T]`.
            text: positions of `ids` that are neither special nor padding.
            rng: draws.
        """
        places = np.sort(rng.choice(text, self.count(len(text)), replace=False))
        self._hide(ids, places, rng)
        return places

    def mask_rows(self, ids: NDArray[np.int64], text: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
        """Hide tokens of every row of `ids` `[R, T]`, in place; returns their places in the flattened rows, ascending.

        Args:
            ids: `[R, T]`, contiguous.
            text: `[R, T]`, what is neither special nor padding.
            rng: draws.
        """
        counts = np.array([self.count(size) for size in text.sum(1).tolist()])
        order = np.argsort(np.where(text, rng.random(ids.shape), 2.0), axis=1)
        chosen = np.zeros(ids.shape, bool)
        np.put_along_axis(chosen, order, np.arange(ids.shape[1]) < counts[:, None], axis=1)
        places = np.flatnonzero(chosen)
        self._hide(ids.reshape(-1), places, rng)
        return places

    def _hide(self, ids: NDArray[np.int64], places: NDArray[np.int64], rng: np.random.Generator) -> None:
        draw = rng.random(len(places))
        ids[places[draw < MASK_SHARE]] = self.mask_id
        changed = places[(draw >= MASK_SHARE) & (draw < MASK_SHARE + RANDOM_SHARE)]
        ids[changed] = rng.integers(self.first_id, self.vocabulary_size, len(changed))
