"""IBM model 1 on an artificial language whose translations are known."""

import random
from itertools import chain

import numpy as np
import pytest

from triptych_training.data import lexicon
from triptych_training.data.lexicon import Lexicon, learn_lexicon

END, FIRST, WORDS = 2, 10, 20  # word w is translated to w + WORDS; ids from FIRST on
SIZE = FIRST + 2 * WORDS
ARTICLE = 5  # occurs in every target and translates nothing
Pairs = list[tuple[list[int], list[int]]]


def make_pairs() -> Pairs:
    """Make sentences of three to six words, translated word for word in reverse order."""
    rng = random.Random(3)
    pairs = []
    for _ in range(400):
        words = [rng.randrange(FIRST, FIRST + WORDS) for _ in range(rng.randint(3, 6))]
        pairs.append(([*words, END], [ARTICLE, *(word + WORDS for word in reversed(words)), END]))
    return pairs


def learn(pairs: Pairs, needed: tuple[int, ...] = (), **limits: float) -> Lexicon:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"always": 0, **limits}.items():
            patch.setattr(lexicon, name.upper(), value)
        return learn_lexicon(pairs, SIZE, needed)


def lists(learned: Lexicon) -> list[list[int]]:
    return [learned.of(source).tolist() for source in range(SIZE)]


def test_every_word_s_best_target_is_its_translation() -> None:
    learned = learn(make_pairs())
    assert [learned.of(word)[0] for word in range(FIRST, FIRST + WORDS)] == list(range(FIRST + WORDS, SIZE))
    assert {ARTICLE, END} <= set(learned.of(END)[:2].tolist())  # targets that translate nothing belong to EOS
    assert not learned.of(FIRST + WORDS).size  # not a source token
    assert not learned.of(0).size


def test_targets_are_limited_in_number_and_probability() -> None:
    pairs = make_pairs()
    short, long = lists(learn(pairs, targets=3)), lists(learn(pairs, targets=9, least_probability=0.0))
    assert {len(targets) for targets in short} <= {0, 1, 2, 3}
    assert len(short[FIRST]) <= 3 < len(long[FIRST]) <= 9
    assert long[FIRST][: len(short[FIRST])] == short[FIRST]
    learned = learn(make_pairs(), least_probability=0.5)
    assert lists(learned)[FIRST : FIRST + WORDS] == [[word] for word in range(FIRST + WORDS, SIZE)]


def test_always_contains_what_the_lists_miss_and_what_is_needed() -> None:
    pairs = make_pairs()
    often, seldom = [ARTICLE, FIRST + WORDS], [ARTICLE, FIRST + WORDS + 1]  # neither article nor translations of word 30
    pairs += [([30, END], [*often, END])] * 30 + [([30, END], [*seldom, END])] * 20
    learned = learn(pairs, targets=1, always=2)
    assert FIRST + WORDS + 1 in learned.always
    assert FIRST + WORDS not in learned.always  # word 30's best target
    assert not learn(make_pairs(), targets=SIZE, always=10, least_probability=0.0).always.size  # the lists miss nothing
    learned = learn(make_pairs(), targets=2, always=5)
    assert learned.always.tolist() == sorted(set(learned.always.tolist()))
    assert not set(chain.from_iterable(lists(learned))) & set(learned.always.tolist())
    learned = learn(make_pairs(), needed=(END, 7))
    assert learned.always.tolist() == [END, 7]


def test_the_size_of_chunks_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = make_pairs()
    whole = learn(pairs, always=4)
    monkeypatch.setattr(lexicon, "LINKS", 100)
    portions = learn(pairs, always=4)
    assert lists(portions) == lists(whole)
    assert portions.always.tolist() == whole.always.tolist()


def test_probabilities_are_those_of_model_1() -> None:
    """Compare with two rounds by hand: the house - das Haus, the book - das Buch."""
    the, house, book, das, haus, buch = range(3, 9)
    links = lexicon._link([([the, house], [das, haus]), ([the, book], [das, buch])], SIZE)
    table = dict(
        zip(zip(links.sources.tolist(), links.targets.tolist(), strict=True), lexicon._maximize(links, 2), strict=True)
    )
    # First round: every link 1/2. p(das|the) = 1/2, p(haus|the) = 1/4, p(das|house) = p(haus|house) = 1/2.
    # Second: das shares 1/2 : 1/2 in both, haus 1/4 : 1/2.
    np.testing.assert_allclose(table[the, das], 1 / (1 + 2 / 3))
    np.testing.assert_allclose(table[the, haus], (1 / 3) / (1 + 2 / 3))
    np.testing.assert_allclose(table[house, haus], (2 / 3) / (1 / 2 + 2 / 3))


def test_invalid_pairs_are_rejected() -> None:
    problems: list[tuple[Pairs, str]] = [
        ([], "there are no sentence pairs"),
        ([([1, END], [])], "one has an empty side"),
        ([([1, SIZE], [1])], f"token {SIZE} is not below {SIZE}"),
        ([([1], [-1, 3])], "token -1 is not below"),
    ]
    for pairs, problem in problems:
        with pytest.raises(ValueError, match=problem):
            learn(pairs)
