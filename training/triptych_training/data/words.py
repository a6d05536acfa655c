"""Words as tokens, and windows of them for Word2Vec."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from triptych_training.data.batches import Indices
from triptych_training.data.documents import Documents

BOUNDARY = "[BOUNDARY]"  # before and after every text; it also stands for unknown words, and counts nothing
WORDS = r"\w+|[^\w\s]"
PAD = 0  # its id, which models.word2vec takes for no word
NEGATIVE_POWER = 0.75  # of the counts, by which negative samples are drawn


def word_tokenizer(words: Sequence[str], lowercase: bool) -> Tokenizer:
    """Make a tokenizer of these words, with ids from 1; other words become BOUNDARY, id 0."""
    vocabulary = {BOUNDARY: PAD, **{word: number for number, word in enumerate(words, start=1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=BOUNDARY))
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
    add_boundary(tokenizer)
    return tokenizer


def add_boundary(tokenizer: Tokenizer) -> int:
    """Put BOUNDARY around every text, instead of other special tokens; return its id."""
    tokenizer.add_special_tokens([BOUNDARY])
    number = tokenizer.get_vocab()[BOUNDARY]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOUNDARY} $A {BOUNDARY}", special_tokens=[(BOUNDARY, number)]
    )
    return number


def train_words(texts: Iterable[str], vocabulary_size: int, min_count: int, lowercase: bool) -> Tokenizer:
    """Make a tokenizer of the most frequent words; the most frequent one has id 1."""
    tokenizer = word_tokenizer((), lowercase)
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary_size, min_frequency=min_count, special_tokens=[BOUNDARY], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@dataclass(frozen=True)
class WordWindows:
    """Examples for Word2Vec: every word with those around it in its sentence."""

    ids: NDArray[np.int64]  # `[N]`, words in the order of the text
    sentences: NDArray[np.int64]  # `[N]`, number of the sentence of each
    window: int  # largest distance of a word around
    cbow: bool  # the words around are given and the one in the middle is predicted; else the other way round

    @classmethod
    def of(
        cls, documents: Documents, keep: NDArray[np.float64], rng: np.random.Generator, window: int, cbow: bool
    ) -> "WordWindows":
        """Leave out unknown words, and frequent words at random: `keep` `[V]` is each word's probability to stay."""
        numbers = np.repeat(np.arange(len(documents.sentences) - 1), np.diff(documents.sentences))
        kept = (documents.ids != PAD) & (rng.random(len(documents.ids)) < keep[documents.ids])
        return cls(documents.ids[kept].astype(np.int64), numbers[kept], window, cbow)

    def examples(self, chosen: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
        """Return given and predicted words, `[B, 1]` and `[B, 2 window]` or reverse; windows end at random distances."""
        offsets = np.concatenate((np.arange(-self.window, 0), np.arange(1, self.window + 1)))
        places = chosen[:, None] + offsets
        inside = (places >= 0) & (places < len(self.ids))
        places = np.clip(places, 0, len(self.ids) - 1)
        inside &= self.sentences[places] == self.sentences[chosen][:, None]
        inside &= np.abs(offsets) <= rng.integers(1, self.window, size=(len(chosen), 1), endpoint=True)
        middle, around = self.ids[chosen][:, None], np.where(inside, self.ids[places], PAD)
        return (around, middle) if self.cbow else (middle, around)


class NegativeSampler:
    """Draws words by their counts to the power of 0.75."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        weights = np.where(np.arange(len(counts)) == PAD, 0.0, counts.astype(np.float64) ** NEGATIVE_POWER)
        self._ends = np.cumsum(weights) / weights.sum()

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Indices:
        """`[rows, count]` ids."""
        drawn = np.searchsorted(self._ends, rng.random((rows, count)), side="right")
        return np.minimum(drawn, len(self._ends) - 1)


def keep_shares(counts: NDArray[np.int64], threshold: float) -> NDArray[np.float64]:
    """Return the probability of each word to stay in the text, sqrt(t / f) (Mikolov et al. 2013, section 2.3)."""
    if not threshold:
        return np.ones(len(counts))
    shares: NDArray[np.float64] = np.sqrt(threshold * counts.sum() / np.maximum(counts, 1))
    return np.minimum(1, shares)
