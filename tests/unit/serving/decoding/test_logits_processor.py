"""Penalties and bans on the next token."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.bundle.search_params import SearchParams, SearchRules
from triptych_serving.decoding.logits_processor import BAN, EditArrays, LogitEdits, LogitsProcessor, ban, width_of
from triptych_serving.text.tokenizers import read_tokenizer
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_serving.text.vocabulary import Vocabulary

from ....fixtures.toy import BUNDLE, TARGETS

END = 2
TOKENS = SpecialTokens(pad=0, start=1, end=END)
LETTERS = Vocabulary([b"", b"", b"", b"a", b"b", b"ab", b"ba", b" a", b"aab", b" "])


def edits(history: list[int], vocabulary: Vocabulary = LETTERS, **options: Any) -> LogitEdits:
    return LogitsProcessor(SearchParams(**options), TOKENS, vocabulary).edits(np.array(history, np.int64))


def banned(history: list[int], vocabulary: Vocabulary = LETTERS, **options: Any) -> list[int]:
    found = edits(history, vocabulary, **options)
    return sorted(set(found.tokens[found.offsets == np.float32(BAN)].tolist()))


def test_each_token_that_occurred_is_penalized_once() -> None:
    found = edits([5, 3, 5, 5, 4], repetition_penalty=1.3)
    assert len(edits([3, 4, 3]).tokens) == 0, "no options give no edits"
    assert sorted(found.tokens.tolist()) == [3, 4, 5]
    assert found.factors.tolist() == pytest.approx([1.3] * 3)
    assert found.offsets.tolist() == [0, 0, 0]
    assert [array.dtype for array in (found.tokens, found.factors, found.offsets)] == [np.int64, np.float32, np.float32]


def by_token(found: LogitEdits) -> dict[int, tuple[float, float]]:
    """Return factor and offset of each token."""
    return dict(zip(found.tokens.tolist(), zip(found.factors.tolist(), found.offsets.tolist(), strict=True), strict=True))


def test_tokens_are_penalized_for_their_presence_and_frequency() -> None:
    assert by_token(edits([5, 3, 5, 5], presence_penalty=0.5)) == {3: (1, -0.5), 5: (1, -0.5)}
    assert by_token(edits([5, 3, 5, 5], frequency_penalty=-0.25)) == {3: (1, 0.25), 5: (1, 0.75)}
    both = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 2.0}
    assert by_token(edits([5, 3, 5], **both, no_repeat_ngram_size=2)) == {3: (1, np.float32(BAN)), 5: (2, -1)}


def test_tokens_of_a_prompt_are_neither_present_nor_frequent() -> None:
    search = SearchParams(presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=2.0)
    found = LogitsProcessor(search, TOKENS, LETTERS, forced=2).edits(np.array([5, 3, 4, 4, 3], np.int64))
    assert by_token(found) == {5: (2, 0), 3: (2, -1), 4: (2, -1.5)}


def test_biases_are_added_to_penalties_and_bans() -> None:
    biases = ((3, 1.5), (4, -100.0), (7, 2.0))
    plain = LogitsProcessor(SearchParams(logit_bias=biases), TOKENS, LETTERS)
    assert plain.is_fixed
    assert by_token(plain.edits(np.array([5, 3], np.int64))) == {3: (1, 1.5), 4: (1, -100), 7: (1, 2)}
    more = {"presence_penalty": 0.5, "repetition_penalty": 2.0, "no_repeat_ngram_size": 2, "suppressed_tokens": ((7,),)}
    found = by_token(edits([5, 3, 5], logit_bias=biases, **more))
    assert found == {3: (1, np.float32(BAN)), 4: (1, -100), 5: (2, -0.5), 7: (1, np.float32(BAN))}
    assert by_token(edits([3, 9], logit_bias=biases, presence_penalty=0.5))[3] == (1, 1.0)
    short = LogitsProcessor(SearchParams(logit_bias=biases, min_length=2), TOKENS, LETTERS)
    assert [len(short.edits(np.array([9] * size, np.int64)).tokens) for size in (1, 2)] == [3 + len(TOKENS.ends), 3]


@pytest.mark.parametrize("options", [{}, {"min_length": 9}, {"suppressed": ("ab",)}])
def test_biases_are_added_once_to_the_same_bans(options: dict[str, Any]) -> None:
    made = LogitsProcessor(SearchParams(logit_bias=((4, 2.0), (7, -1.0)), **options), TOKENS, LETTERS)
    first, second = (made.edits(np.array(history, np.int64)) for history in ([4, 3], [3, 4, 3]))
    assert first is second
    assert by_token(first)[7] == (1, -1)
    assert by_token(first)[4] == (1, np.float32(BAN) + 2 if "suppressed" in options else 2)


@pytest.mark.parametrize(("beams", "factor"), [(1, -1), (2, 1)])
def test_biases_are_added_where_transformers_adds_them(beams: int, factor: int) -> None:
    search = SearchParams(rules=SearchRules.TRANSFORMERS, beam_size=beams, logit_bias=((5, 2.0),))
    assert by_token(LogitsProcessor(search, TOKENS, LETTERS).edits(np.zeros(0, np.int64))) == {5: (factor, 2)}


def test_a_banned_token_gets_no_penalty() -> None:
    found = edits([5, 3, 5], repetition_penalty=1.3, no_repeat_ngram_size=2)
    assert len(found.tokens) == 2
    assert by_token(found) == {3: (1, np.float32(BAN)), 5: (np.float32(1.3), 0)}


@given(st.lists(st.integers(3, 5), max_size=20), st.integers(1, 4))
def test_repeated_ngrams_are_those_of_a_plain_count(history: list[int], size: int) -> None:
    runs = {tuple(history[i : i + size]) for i in range(len(history) - size + 1)}
    last = history[len(history) - size + 1 :]
    expected = [token for token in range(3, 6) if len(last) == size - 1 and (*last, token) in runs]
    assert banned(history, no_repeat_ngram_size=size) == expected


@pytest.mark.parametrize(
    ("history", "texts", "expected"),
    [
        ([], ["b"], [4, 5, 6, 8]),
        ([], [" a"], []),  # the first space is not part of the text
        ([9], [" a"], [7]),
        ([3, 4], ["ab"], [5, 8]),  # it has occurred: only the next occurrence is banned
        ([3, 0, 4], ["abab"], [5]),  # a token without bytes is between
        ([3], ["AB"], []),
        ([4], ["bb", "ba"], [3, 4, 5, 6, 8]),
        ([8, 8], ["aabaaba"], [3, 5, 8]),  # longer than any token
        ([8], ["aabaaba"], []),
    ],
)
def test_texts_are_suppressed_however_they_are_tokenized(history: list[int], texts: list[str], expected: list[int]) -> None:
    assert banned(history, suppressed=tuple(texts)) == expected


@given(st.lists(st.integers(0, 9), max_size=8), st.text("ab ", min_size=1, max_size=4))
def test_bans_are_tokens_with_which_the_text_would_occur(history: list[int], text: str) -> None:
    surfaces = ["", "", "", "a", "b", "ab", "ba", " a", "aab", " "]

    def occurrences(tokens: list[int]) -> int:
        whole = "".join(surfaces[token] for token in tokens).removeprefix(" ")
        return sum(whole.startswith(text, start) for start in range(len(whole)))

    expected = [token for token in range(10) if occurrences([*history, token]) > occurrences(history)]
    assert banned(history, suppressed=(text,)) == expected


@pytest.mark.parametrize("seed", range(8))
def test_a_suppressed_text_is_never_decoded(seed: int, codec: TranslationTokenizer) -> None:
    """Random walks over the toy model's tokens of the suppressed texts."""
    dice = random.Random(seed)
    texts = tuple(dice.sample([text[2:6] for text in TARGETS], 3))
    vocabulary = Vocabulary.of(read_tokenizer(BUNDLE / "tokenizer.json"))
    processor = LogitsProcessor(SearchParams(suppressed=texts), TOKENS, vocabulary)
    wanted = [token for text in texts for token in codec.encode([text])[0] if token != END]
    row: list[int] = []
    for _ in range(200):
        bans = set(processor.edits(np.array(row, np.int64)).tokens.tolist())
        row.append(dice.choice([token for token in wanted if token not in bans]))
    [decoded] = codec.decode([row])
    assert not any(text in decoded for text in texts)


def test_rows_are_padded_to_one_width() -> None:
    first = LogitEdits(np.array([7, 8, 9]), np.array([1.5, 1, 1], np.float32), np.array([0, BAN, 0], np.float32))
    second = LogitEdits(np.array([4]), np.array([2], np.float32), np.array([0], np.float32))
    arrays = EditArrays(4, 4)
    for edited in ([second, first, None, second], [first, None, second]):
        arrays.write(edited)
    assert arrays.tokens.tolist() == [[7, 8, 9, 7], [0] * 4, [4] * 4, [4] * 4]
    assert arrays.factors.tolist() == [[1.5, 1, 1, 1.5], [1] * 4, [2] * 4, [2] * 4]
    assert arrays.offsets.tolist() == [[0, np.float32(BAN), 0, 0], [0] * 4, [0] * 4, [0] * 4]
    arrays.write([None] * 4)
    assert not arrays.tokens.any()
    assert (arrays.factors == 1).all()
    assert not arrays.offsets.any()


@pytest.mark.parametrize(("count", "width"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8)])
def test_the_width_is_a_power_of_two(count: int, width: int) -> None:
    assert width_of([None, ban(np.arange(count))]) == width


def test_a_ban_gives_probability_zero_and_finite_sums() -> None:
    logits = np.array([30.0, BAN + 25.0, -40.0], np.float32)
    shifted = logits - logits.max()
    log_probabilities = shifted - np.log(np.exp(shifted).sum())
    assert np.exp(log_probabilities[1]) == 0
    assert np.isfinite(1_000 * log_probabilities).all()


RUNS = ((3,), (4, 5), (6, 7, END), (8, 8))


@pytest.mark.parametrize("rules", list(SearchRules))
@pytest.mark.parametrize(
    ("history", "expected"),
    [([], [3]), ([4], [3, 5]), ([5, 4], [3, 5]), ([4, 6], [3]), ([6, 7], [END, 3]), ([8], [3, 8]), ([8, 8, 6], [3])],
)
def test_suppressed_token_runs_are_not_completed(rules: SearchRules, history: list[int], expected: list[int]) -> None:
    assert banned(history, rules=rules, suppressed_tokens=RUNS) == expected


def test_transformers_rules_count_the_start_token() -> None:
    start, options = TOKENS.start, {"repetition_penalty": 1.3, "beam_size": 2}
    assert sorted(edits([5, 3], rules=SearchRules.TRANSFORMERS, **options).tokens.tolist()) == [start, 3, 5]
    assert sorted(edits([5, 3], **options).tokens.tolist()) == [3, 5]
    for size, history in ((1, []), (2, [5, start])):
        assert banned(history, no_repeat_ngram_size=size, rules=SearchRules.TRANSFORMERS) == ([start] if size == 1 else [5])
        assert banned(history, no_repeat_ngram_size=size) == []
    assert banned([5], suppressed_tokens=((start, 5, 6),), rules=SearchRules.TRANSFORMERS) == [6]


@pytest.mark.parametrize("rules", list(SearchRules))
def test_min_length_does_not_count_the_start_token(rules: SearchRules) -> None:
    assert [banned([5] * length, min_length=2, rules=rules) for length in (0, 1, 2)] == [[END], [END], []]


def test_the_sign_of_a_penalty_selects_logits() -> None:
    """Transformers penalizes logits in greedy search and sampling, log-probabilities in beam search."""
    for options, sign in (({}, -1), ({"sampling_topk": 5, "num_hypotheses": 3}, -1), ({"beam_size": 2}, 1)):
        asked: dict[str, Any] = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, **options}
        found = edits([5, 3, 5], rules=SearchRules.TRANSFORMERS, **asked)
        factors = dict(zip(found.tokens.tolist(), found.factors.tolist(), strict=True))
        assert factors == {3: 1.0, 5: sign * 1.5, TOKENS.start: sign * 1.5}
        assert (edits([5, 3, 5], **asked).factors > 0).all()


@pytest.mark.parametrize("rules", list(SearchRules))
def test_forced_first_tokens_are_not_part_of_a_text(rules: SearchRules) -> None:
    search = SearchParams(suppressed=("ab",), rules=rules)
    shown = LogitsProcessor(search, TOKENS, LETTERS).edits(np.array([3], np.int64))
    hidden = LogitsProcessor(search, TOKENS, LETTERS, forced=1).edits(np.array([3], np.int64))
    assert sorted(set(shown.tokens.tolist()) - set(hidden.tokens.tolist())) == [4, 6]


def test_the_space_before_the_first_word_counts_where_it_is_shown() -> None:
    search, none = SearchParams(suppressed=(" a",)), np.array([], np.int64)
    assert banned([], suppressed=(" a",)) == []
    shown = Vocabulary([LETTERS.bytes_of(token) for token in range(10)], strips=False)
    for processor in (LogitsProcessor(search, TOKENS, LETTERS, begins=False), LogitsProcessor(search, TOKENS, shown)):
        assert processor.edits(none).tokens.tolist() == [7]
        assert sorted(processor.edits(np.array([9])).tokens.tolist()) == [3, 5, 7, 8]
