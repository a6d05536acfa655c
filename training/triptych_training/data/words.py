"""Words as tokens, and blocks of them for Word2Vec."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from triptych_training.data.batches import Indices
from triptych_training.data.documents import Documents
from triptych_training.errors import CorpusError

BOUNDARY = "[BOUNDARY]"  # before and after every text; it also stands for unknown words, and counts nothing
WORDS = r"\w+|[^\w\s]"
PAD = 0  # its id, which models.word2vec takes for no word
BLOCK = 32  # words in a row that are scored together: their windows overlap
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
    """Make a tokenizer of the most frequent words; the most frequent one has id 1.

    Raises:
        CorpusError: no word occurs `min_count` times.
    """
    tokenizer = word_tokenizer((), lowercase)
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary_size, min_frequency=min_count, special_tokens=[BOUNDARY], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() == 1:
        raise CorpusError(f"train: no word occurs {min_count:,} times; lower min_count, or add text")
    return tokenizer


@dataclass(frozen=True)
class WordBlocks:
    """Examples for Word2Vec: blocks of BLOCK words of the text, with `window` words before and after each block.

    A block's windows overlap, and a batch shares its negative samples, so that all scores are products of matrices (Ji et al.
    2016, https://arxiv.org/abs/1604.04661).
    """

    count: int  # words without padding
    ids: NDArray[np.int64]  # `[window + blocks x BLOCK + window]`, words in the order of the text; PAD at both ends
    sentences: NDArray[np.int32]  # of the same shape: number of the sentence of each
    window: int  # largest distance of a word around

    @classmethod
    def of(cls, documents: Documents, keep: NDArray[np.float64], rng: np.random.Generator, window: int) -> "WordBlocks":
        """Leave out unknown words, and frequent words at random: `keep` `[V]` is each word's probability to stay."""
        numbers = np.repeat(np.arange(len(documents.sentences) - 1, dtype=np.int32), np.diff(documents.sentences))
        kept = (documents.ids != PAD) & (rng.random(len(documents.ids)) < keep[documents.ids])
        count = int(kept.sum())
        ends = (window, window + -count % BLOCK)
        return cls(count, np.pad(documents.ids[kept].astype(np.int64), ends), np.pad(numbers[kept], ends), window)

    def __len__(self) -> int:
        return (self.count + BLOCK - 1) // BLOCK

    def words(self, chosen: Indices) -> int:
        """Return the number of words in these blocks."""
        return int(np.minimum(BLOCK, self.count - chosen * BLOCK).sum())

    def examples(self, chosen: Indices, rng: np.random.Generator) -> tuple[Indices, NDArray[np.bool_]]:
        """Return `[B, W]` words, W = BLOCK + 2 window, and `[B, BLOCK, W]`: which are around each; windows end at random."""
        width = BLOCK + 2 * self.window
        places = chosen[:, None] * BLOCK + np.arange(width)
        ids, sentences = self.ids[places], self.sentences[places]
        middle = slice(self.window, self.window + BLOCK)
        distances = np.abs(np.arange(width) - np.arange(width)[middle, None])  # [BLOCK, BLOCK + 2 window]
        reach = rng.integers(1, self.window, size=(len(chosen), BLOCK, 1), endpoint=True)
        around = (distances > 0) & (distances <= reach) & (sentences[:, None] == sentences[:, middle, None])
        return ids, around & (ids != PAD)[:, None] & (ids[:, middle, None] != PAD)


class NegativeSampler:
    """Draws words by their counts to the power of 0.75."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        weights = np.where(np.arange(len(counts)) == PAD, 0.0, counts.astype(np.float64) ** NEGATIVE_POWER)
        self._ends = np.cumsum(weights) / weights.sum()

    def draw(self, count: int, rng: np.random.Generator) -> Indices:
        """`[count]` ids."""
        drawn = np.searchsorted(self._ends, rng.random(count), side="right")
        return np.minimum(drawn, len(self._ends) - 1)


def keep_shares(counts: NDArray[np.int64], threshold: float) -> NDArray[np.float64]:
    """Return the probability of each word to stay in the text, sqrt(t / f) + t / f.

    It is the original program's; the paper has the first term alone (Mikolov et al. 2013, section 2.3).
    """
    if not threshold:
        return np.ones(len(counts))
    shares: NDArray[np.float64] = threshold * counts.sum() / np.maximum(counts, 1)
    shares += np.sqrt(shares)
    return np.minimum(1, shares)
