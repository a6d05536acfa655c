"""Which target tokens a source token is likely translated to: IBM model 1 (Brown et al. 1993) over token ids.

Model 1 takes each token of a target sentence for the translation of one token of its source, any of them with equal right,
and learns p(target | source) by expectation maximization. It sees the translation model's own tokens and needs no word for
"nothing": the end of the sentence, last in every source, takes the part of Brown's empty word.

The work is done on flat arrays. A *link* is one target token beside one token of its source: 172,040 short sentence pairs
have 28 million, which take 4 bytes each while they are learnt from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_training.errors import RecipeError

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
LINKS = 1 << 22  # in memory at once with all that belongs to them


@dataclass(frozen=True)
class LexiconOptions:
    """How much is kept.

    Args:
        targets: most for each source token.
        least_probability: p(target | source) from which on a target is kept.
        always: target tokens that belong to every sentence.
        iterations: of expectation maximization.

    Raises:
        RecipeError: a number is out of range.
    """

    targets: int = 32
    least_probability: float = 1e-3
    always: int = 256
    iterations: int = 5

    def __post_init__(self) -> None:
        for name, least in (("targets", 1), ("always", 0), ("iterations", 1)):
            if getattr(self, name) < least:
                raise RecipeError(f"{name}: {getattr(self, name)} is below {least}")
        if not 0 <= self.least_probability <= 1:
            raise RecipeError(f"least_probability: {self.least_probability} is not from 0 to 1")


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Source token s has `targets[offsets[s]:offsets[s + 1]]`, the likeliest first; V is the size of the vocabulary."""

    offsets: Ints  # [V + 1]
    targets: Ints  # [n]
    always: Ints  # [m], ascending; no source token lists one of them again

    def of(self, source: int) -> Ints:
        """The targets of one source token beside those that are always taken."""
        return self.targets[self.offsets[source] : self.offsets[source + 1]]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Links of some sentences, those of one target token side by side."""

    entries: Ints  # [links]: index of the pair (source token, target token)
    starts: Ints  # [target tokens]: where the links of each begin
    fans: Ints  # [target tokens]: how many each has


@dataclass(frozen=True, eq=False)
class Links:
    """All pairs of tokens that occur in a pair of sentences, by source and then target, and where they do."""

    sources: Ints  # [pairs]
    targets: Ints  # [pairs]
    chunks: Sequence[Chunk]
    size: int  # of the vocabulary


def learn_lexicon(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    vocabulary_size: int,
    options: LexiconOptions | None = None,
    needed: Sequence[int] = (),
) -> Lexicon:
    """Learn from sentence pairs as ids, end of sentence last on both sides.

    What is always taken are not the most frequent targets, most of which some source token brings anyway, but those that
    the source tokens' best targets miss most often in the pairs themselves.

    Args:
        pairs: source and target; none is empty.
        vocabulary_size: ids are below it, on both sides.
        options: how much is kept.
        needed: targets that are always taken, whatever the pairs say.

    Raises:
        ValueError: there are no pairs, a sentence is empty or an id is out of range.
    """
    options = options or LexiconOptions()
    links = _link(pairs, vocabulary_size)
    probabilities = _maximize(links, options.iterations)
    probabilities[probabilities < options.least_probability] = 0
    missed = _missed(links, _best(links, probabilities, options.targets))
    missed[list(needed)] = np.inf
    always = np.argsort(-missed, kind="stable")[: max(options.always, len(set(needed)))]
    always = np.sort(always[missed[always] > 0])
    probabilities[np.isin(links.targets, always)] = 0
    best = _best(links, probabilities, options.targets)
    counts = np.bincount(links.sources[best], minlength=vocabulary_size)
    return Lexicon(np.concatenate([[0], np.cumsum(counts)]), links.targets[best], always)


@dataclass(frozen=True, eq=False)
class _Side:
    """One language's sentences, one after the other."""

    tokens: Ints
    lengths: Ints  # of each sentence
    starts: Ints


def _link(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], size: int) -> Links:
    source, target = _flatten([pair[0] for pair in pairs], size), _flatten([pair[1] for pair in pairs], size)
    parts = [(*np.unique(keys, return_inverse=True), fans) for keys, fans in _keys(source, target, size)]
    known = np.unique(np.concatenate([keys for keys, _, _ in parts]))
    chunks = [Chunk(np.searchsorted(known, keys).astype(np.int32)[places], _starts(fans), fans) for keys, places, fans in parts]
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
    """Some sentences at a time: source token * size + target token of every link, and the links of each target token."""
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
    """p(target | source) of every pair of tokens."""
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
    """Of every source token the `count` likeliest pairs, those of probability 0 left out; by source, the likeliest first."""
    order = np.lexsort((-probabilities, links.sources))
    ranks = np.arange(len(order)) - np.searchsorted(links.sources, links.sources[order])
    best: Ints = order[(ranks < count) & (probabilities[order] > 0)]
    return best


def _missed(links: Links, kept: Ints) -> Floats:
    """How often each target token, `[V]`, stands where no token of its source has it among the pairs kept."""
    has = np.zeros(len(links.sources), bool)
    has[kept] = True
    missed = np.zeros(links.size)
    for chunk in links.chunks:
        found = np.logical_or.reduceat(has[chunk.entries], chunk.starts)
        missed += np.bincount(links.targets[chunk.entries[chunk.starts]][~found], minlength=links.size)
    return missed
