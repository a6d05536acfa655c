"""Likely target tokens of each source token: IBM model 1 (Brown et al. 1993) over token ids.

Model 1 treats each target token as the translation of one source token, all equally likely a priori, and learns
p(target | source) by expectation maximization. It works on the translation model's own tokens. EOS, the last token of every
source, plays the part of Brown's empty word.

The implementation uses flat arrays. A *link* is a target token with one token of its source: 172,040 short sentence pairs
have 28 million links of 4 bytes each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
LINKS = 1 << 22  # links per chunk
TARGETS, LEAST_PROBABILITY = 32, 1e-3  # of a source token: largest number of targets, and smallest p(target | source)
ALWAYS = 256  # target tokens that are candidates in every sentence
ITERATIONS = 5  # of expectation maximization


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Targets of each source token: token s has `targets[offsets[s]:offsets[s + 1]]`, most likely first."""

    offsets: Ints  # [vocabulary size + 1]
    targets: Ints  # [n]
    always: Ints  # [m], ascending: candidates in every sentence; not repeated in `targets`

    def of(self, source: int) -> Ints:
        """Return the targets of one source token, without `always`."""
        return self.targets[self.offsets[source] : self.offsets[source + 1]]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Links of some sentences, sorted by target token."""

    entries: Ints  # [links]: index of the pair (source token, target token)
    starts: Ints  # [target tokens]: first link of each
    fans: Ints  # [target tokens]: number of links of each


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of tokens that occur together, sorted by source and then target, with their links."""

    sources: Ints  # [pairs]
    targets: Ints  # [pairs]
    chunks: Sequence[Chunk]
    size: int  # of the vocabulary


def learn_lexicon(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], vocabulary_size: int, needed: Sequence[int]) -> Lexicon:
    """Learn a lexicon from pairs of sentences, neither empty, as ids below `vocabulary_size`, EOS last on both sides.

    `always` gets the `needed` targets and those that the lists of the source tokens miss most often in the pairs themselves.
    The most frequent targets would be a worse choice: most of them are in some list anyway.

    Raises:
        ValueError: there are no pairs, a sentence is empty or an id is out of range.
    """
    links = _link(pairs, vocabulary_size)
    probabilities = _maximize(links, ITERATIONS)
    probabilities[probabilities < LEAST_PROBABILITY] = 0
    missed = _missed(links, _best(links, probabilities, TARGETS))
    missed[list(needed)] = np.inf
    always = np.argsort(-missed, kind="stable")[: max(ALWAYS, len(set(needed)))]
    always = np.sort(always[missed[always] > 0])
    probabilities[np.isin(links.targets, always)] = 0
    best = _best(links, probabilities, TARGETS)
    counts = np.bincount(links.sources[best], minlength=vocabulary_size)
    return Lexicon(np.concatenate([[0], np.cumsum(counts)]), links.targets[best], always)


@dataclass(frozen=True, eq=False)
class _Side:
    """Concatenated sentences of one language."""

    tokens: Ints
    lengths: Ints  # of each sentence
    starts: Ints


def _link(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], size: int) -> Links:
    source, target = _flatten([pair[0] for pair in pairs], size), _flatten([pair[1] for pair in pairs], size)
    parts = [(*np.unique(keys, return_inverse=True), fans) for keys, fans in _keys(source, target, size)]
    known = np.unique(np.concatenate([keys for keys, _, _ in parts]))
    chunks = [Chunk(np.searchsorted(known, keys).astype(np.int32)[index], _starts(fans), fans) for keys, index, fans in parts]
    return Links(known // size, known % size, chunks, size)


def _flatten(sentences: Sequence[Sequence[int]], size: int) -> _Side:
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    if not len(lengths) or lengths.min() < 1:
        raise ValueError("there are no sentence pairs, or one has an empty side")
    tokens = np.fromiter(chain.from_iterable(sentences), np.int64, int(lengths.sum()))
    if tokens.min() < 0 or tokens.max() >= size:
        raise ValueError(f"token {tokens.max() if tokens.min() >= 0 else tokens.min()} is not below {size}, or negative")
    return _Side(tokens, lengths, _starts(lengths))


def _starts(lengths: Ints) -> Ints:
    starts: Ints = np.cumsum(lengths) - lengths
    return starts


def _keys(source: _Side, target: _Side, size: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield, for some sentences at a time, source token * size + target token of every link, and each target token's links."""
    links = np.cumsum(source.lengths * target.lengths)
    cuts = np.unique(np.append(np.searchsorted(links, np.arange(0, links[-1], LINKS)), len(links)))
    for first, last in pairwise(cuts.tolist()):
        lengths = target.lengths[first:last]
        fans = np.repeat(source.lengths[first:last], lengths)
        shift = np.repeat(source.starts[first:last], lengths) - _starts(fans)
        words = source.tokens[np.arange(fans.sum()) + np.repeat(shift, fans)]
        begin = target.starts[first]
        yield words * size + np.repeat(target.tokens[begin : begin + lengths.sum()], fans), fans


def _maximize(links: Links, iterations: int) -> Floats:
    """Learn p(target | source) of every pair of tokens."""
    probabilities = np.ones(len(links.sources))
    for _ in range(iterations):
        counts = np.zeros(len(probabilities))
        for chunk in links.chunks:
            shares = probabilities[chunk.entries]
            shares /= np.repeat(np.add.reduceat(shares, chunk.starts), chunk.fans)
            counts += np.bincount(chunk.entries, shares, len(counts))
        probabilities = counts / np.bincount(links.sources, counts, links.size)[links.sources]
    return probabilities


def _best(links: Links, probabilities: Floats, count: int) -> Ints:
    """Select each source token's `count` most likely pairs above probability 0, sorted by source and probability."""
    order = np.lexsort((-probabilities, links.sources))
    ranks = np.arange(len(order)) - np.searchsorted(links.sources, links.sources[order])
    best: Ints = order[(ranks < count) & (probabilities[order] > 0)]
    return best


def _missed(links: Links, kept: Ints) -> Floats:
    """Count, for each target token, how often none of the source's tokens has it among the pairs `kept`."""
    has = np.zeros(len(links.sources), bool)
    has[kept] = True
    missed = np.zeros(links.size)
    for chunk in links.chunks:
        found = np.logical_or.reduceat(has[chunk.entries], chunk.starts)
        missed += np.bincount(links.targets[chunk.entries[chunk.starts]][~found], minlength=links.size)
    return missed
