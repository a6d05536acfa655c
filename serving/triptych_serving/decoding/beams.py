"""One step of beam search for many texts at once: in the library of kernels, or with numpy where it is not installed."""

import ctypes
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from triptych_serving.decoding.hypotheses import HypothesisGroup, Ranked
from triptych_serving.decoding.sampler import likeliest
from triptych_serving.runtime.native.library import COPY_NUMBERS, beam_step
from triptych_serving.runtime.session import Array

Fork = Callable[[Array], None]

HEADER, COUNT, WENT_ON = 4, 2, 3  # numbers of a text before its slots, and places of some of them: `Text` in beams.h


class Hypotheses(Protocol):
    """Arrays of the hypotheses in `count` slots, each `[count]`, and what they have in common."""

    count: int
    so_far: Array  # log-probability
    tokens: Array  # newest token
    positions: Array  # number of tokens
    history: Array  # `[count, longest]`: tokens
    ends: Array  # `[ends]`: tokens that end a text


class BeamStep:
    """Ranks the continuations of all hypotheses: in one call of the library of kernels, or with numpy where there is none.

    Args:
        hypotheses: in slots.
        top: `top_log_probabilities` and `top_tokens` `[count, candidates]`, descending.
    """

    def __init__(self, hypotheses: Hypotheses, top: Mapping[str, Array]) -> None:
        # The arrays, not their owner, who refers to this object: a cycle would keep the caches for a long time.
        self._so_far, self._top = hypotheses.so_far, top
        self._run = beam_step()
        if self._run is None:
            return
        most = hypotheses.count * (1 + max(1, len(hypotheses.ends)))  # continuations of all hypotheses
        self._best = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.float64)
        self._forks = np.zeros((hypotheses.count, COPY_NUMBERS), np.int64)
        log_probabilities, tokens = top["top_log_probabilities"], top["top_tokens"]
        h = hypotheses
        self._kept = h.so_far, h.tokens, h.history, h.positions, h.ends
        self._arrays = _Arrays(
            *(_address(log_probabilities), _address(tokens), tokens.shape[1]),
            *(_address(h.so_far), _address(h.tokens), _address(h.history), h.history.shape[1], _address(h.positions)),
            *(_address(h.ends), len(h.ends), *map(_address, self._best), _address(self._forks)),
        )

    def rank(self, groups: Sequence[HypothesisGroup], fork: Fork) -> Iterator[tuple[HypothesisGroup, Ranked]]:
        """Yield searches, each with its `candidates` best continuations.

        Searches that the kernel has extended by a token are not yielded: `go_on` was called for them.

        Args:
            groups: the searches.
            fork: called where hypotheses overwrite others, with `[forks, 5]` as `KVCache.copy_rows` has it; the arrays of
                `Hypotheses` have it already.
        """
        if self._run is None:
            yield from self._rank_with_numpy(groups)
            return
        numbers: list[int] = []
        for group in groups:
            slots, width = group.slots, group.width
            running = len(slots)
            numbers += (running, width, group.candidates, running == width and group.is_plain)
            numbers += slots
            numbers += (0,) * (width - running)
        table = array("q", numbers)
        forks = self._run(self._arrays, table.buffer_info()[0], len(groups))
        if forks:
            fork(self._forks[:forks])
        numbers = table.tolist()
        start = listed = 0
        for group in groups:
            end = start + HEADER + group.width
            if numbers[start + WENT_ON]:
                group.go_on(numbers[start + HEADER : end])
            else:
                place = slice(listed, listed := listed + numbers[start + COUNT])
                yield group, zip(*(each[place].tolist() for each in self._best), strict=True)
            start = end

    def _rank_with_numpy(self, groups: Sequence[HypothesisGroup]) -> Iterator[tuple[HypothesisGroup, Ranked]]:
        alike: dict[tuple[int, int], list[HypothesisGroup]] = {}
        for group in groups:
            alike.setdefault((len(group.slots), group.candidates), []).append(group)
        for (_, count), own in alike.items():
            slots = np.array([group.slots for group in own])  # [texts, hypotheses]
            top = self._top["top_log_probabilities"][slots, :count]
            totals = (self._so_far[slots][..., None] + top).reshape(len(slots), -1)
            order = likeliest(totals, count)
            texts = np.arange(len(slots))[:, None]
            hypotheses, ranks = np.divmod(order, top.shape[2])
            chosen = slots[texts, hypotheses]
            tokens = self._top["top_tokens"][chosen, ranks]
            for group, *best in zip(own, chosen.tolist(), tokens.tolist(), totals[texts, order].tolist(), strict=True):
                yield group, zip(*best, strict=True)


class _Arrays(ctypes.Structure):
    """`Beams` in beams.h."""

    _fields_ = (
        ("top", ctypes.c_void_p),
        ("top_tokens", ctypes.c_void_p),
        ("columns", ctypes.c_int64),
        ("so_far", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("history", ctypes.c_void_p),
        ("longest", ctypes.c_int64),
        ("positions", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("end_count", ctypes.c_int64),
        ("best_slots", ctypes.c_void_p),
        ("best_tokens", ctypes.c_void_p),
        ("best_totals", ctypes.c_void_p),
        ("forks", ctypes.c_void_p),
    )


def _address(values: Any) -> int:
    return int(values.ctypes.data)
