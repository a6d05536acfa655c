"""Masking for masked language modelling (Devlin et al. 2018, section 3.1)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the chosen tokens; the others are not changed


@dataclass(frozen=True)
class Masker:
    """Draws new masks at every call ("dynamic masking"; Liu et al. 2019)."""

    share: float  # of a row's text that is to be predicted
    mask_id: int  # [MASK]
    first_id: int  # ids from here on are text; special tokens come before and are never drawn
    vocabulary_size: int

    def count(self, tokens: int) -> int:
        """Return how many of a row's `tokens` to predict: at least one."""
        return max(1, round(self.share * tokens))

    def mask(self, ids: NDArray[np.int64], text: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Mask tokens of the row `ids` `[T]` in place; return their positions, ascending.

        `text` holds the positions that are neither special tokens nor padding.
        """
        chosen = np.sort(rng.choice(text, self.count(len(text)), replace=False))
        self._replace(ids, chosen, rng)
        return chosen

    def mask_rows(self, ids: NDArray[np.int64], text: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
        """Mask tokens of every row of `ids` `[R, T]` (contiguous) in place; return their flattened positions, ascending.

        `text` `[R, T]` is true for what is neither special tokens nor padding.
        """
        counts = np.array([self.count(size) for size in text.sum(1).tolist()])
        order = np.argsort(np.where(text, rng.random(ids.shape), 2.0), axis=1)
        chosen = np.zeros(ids.shape, bool)
        np.put_along_axis(chosen, order, np.arange(ids.shape[1]) < counts[:, None], axis=1)
        positions = np.flatnonzero(chosen)
        self._replace(ids.reshape(-1), positions, rng)
        return positions

    def _replace(self, ids: NDArray[np.int64], positions: NDArray[np.int64], rng: np.random.Generator) -> None:
        draw = rng.random(len(positions))
        ids[positions[draw < MASK_SHARE]] = self.mask_id
        random = positions[(draw >= MASK_SHARE) & (draw < MASK_SHARE + RANDOM_SHARE)]
        ids[random] = rng.integers(self.first_id, self.vocabulary_size, len(random))
