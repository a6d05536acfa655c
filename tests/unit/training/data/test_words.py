"""Words as tokens."""

import pytest

from triptych_training.data.words import train_words
from triptych_training.errors import CorpusError


def test_a_vocabulary_without_words_is_refused() -> None:
    assert train_words(["a b a"], 10, min_count=2, lowercase=True).get_vocab() == {"[BOUNDARY]": 0, "a": 1}
    with pytest.raises(CorpusError, match="train: no word occurs 3 times; lower min_count"):
        train_words(["a b a"], 10, min_count=3, lowercase=True)
