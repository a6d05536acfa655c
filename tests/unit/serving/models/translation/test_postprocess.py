"""Texts as rows, and rows as texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.models.translation.postprocess import GrowingText, Translation, assemble
from triptych_serving.models.translation.preprocess import PreparedText
from triptych_serving.scheduling.request import Finish, Hypothesis, Row
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.sentences import Splitter

from .....fixtures.toy import BUNDLE, TARGETS

TEXT = f"  {TARGETS[0]}\n\n{TARGETS[1]} {TARGETS[2]}\t"
STOP, LENGTH = Finish.STOP, Finish.LENGTH


def ids_of(codec: TranslationTokenizer, text: str) -> list[int]:
    return codec.encode([text])[0][:-1]


def prepare(codec: TranslationTokenizer, text: str, search: SearchParams = GREEDY) -> PreparedText:
    sentences = Splitter("de", lambda _: True).split(text)
    return PreparedText(sentences, tuple(Row(source, 63, search) for source in codec.encode(sentences.texts)))


def answer(row: Row, *hypotheses: Hypothesis) -> None:
    """Finish a row as a lane does."""
    row.tokens[:] = hypotheses[0].tokens
    row.hypotheses = hypotheses
    row.finish = hypotheses[0].finish


def echo(row: Row) -> None:
    """A model that says what it hears."""
    answer(row, Hypothesis(tuple(row.source[:-1]), STOP))


def output_of(codec: TranslationTokenizer, text: PreparedText) -> Translation:
    [output] = filter(None, assemble([text], codec))
    return output


@pytest.mark.parametrize("text", [TEXT, TARGETS[0], f"{TARGETS[0]}\n", f"\n \n{TARGETS[0]}\r\n\r\n\r\n{TARGETS[1]}\u2028x"])
def test_echoed_rows_reassemble_the_text(codec: TranslationTokenizer, text: str) -> None:
    prepared = prepare(codec, text)
    for row in prepared.rows:
        echo(row)
    output = output_of(codec, prepared)
    assert output.text == text
    assert output.hypotheses[0].finish is STOP
    assert output.source_token_count == output.hypotheses[0].token_count + len(prepared.rows)


def hypothesis(codec: TranslationTokenizer, text: str, score: float, sources: int, weight: float) -> Hypothesis:
    tokens = tuple(ids_of(codec, text))
    return Hypothesis(tokens, STOP, score, score, np.full((len(tokens), sources), weight, np.float32))


def test_hypotheses_of_several_sentences(codec: TranslationTokenizer) -> None:
    """The second text has the second best of each sentence, or its last."""
    prepared = prepare(codec, TEXT, SearchParams(beam_size=3, num_hypotheses=3, scores=True))
    first, second, third = prepared.rows
    answer(first, *(hypothesis(codec, TARGETS[index], -float(index), 1, 1) for index in (1, 2, 3)))
    answer(second, hypothesis(codec, TARGETS[4], -4.0, 1, 1))
    answer(third, *(hypothesis(codec, TARGETS[index], -float(index), 1, 1) for index in (5, 6)))
    output = output_of(codec, prepared)
    assert [one.text for one in output.hypotheses] == [
        f"  {TARGETS[a]}\n\n{TARGETS[4]} {TARGETS[b]}\t" for a, b in ((1, 5), (2, 6), (3, 6))
    ]
    assert [one.score for one in output.hypotheses] == [-10.0, -12.0, -13.0]
    assert [one.alignment for one in output.hypotheses] == [None, None, None]


def test_alignment_spans_all_source_tokens(codec: TranslationTokenizer) -> None:
    prepared = prepare(codec, f"{TARGETS[0]} {TARGETS[1]}", SearchParams(alignment=True))
    for row, weight in zip(prepared.rows, (0.25, 0.5), strict=True):
        answer(row, hypothesis(codec, TARGETS[2], -1.0, row.size, weight))
    [found] = output_of(codec, prepared).hypotheses
    tokens, (first, second) = len(ids_of(codec, TARGETS[2])), (row.size for row in prepared.rows)
    expected = np.zeros((2 * tokens, first + second))
    expected[:tokens, :first], expected[tokens:, first:] = 0.25, 0.5
    assert found.alignment is not None
    np.testing.assert_array_equal(found.alignment, expected)
    assert found.token_count == 2 * tokens


def test_a_sentence_waits_for_those_before_it(codec: TranslationTokenizer) -> None:
    prepared = prepare(codec, TEXT)
    (first, second, third), growing = prepared.rows, GrowingText(prepared, codec)
    echo(third)
    second.tokens.extend(second.source[:3])
    assert growing.advance(third) == growing.advance(second) == ""
    echo(first)
    said = growing.advance(second)  # the change of another row shows the finished one
    assert said.startswith(f"  {TARGETS[0]}\n\n")
    assert TEXT.startswith(said)
    echo(second)
    assert said + growing.advance(second) == TEXT


def test_a_retried_row_repeats_nothing(codec: TranslationTokenizer) -> None:
    prepared = prepare(codec, TARGETS[0])
    [row], growing = prepared.rows, GrowingText(prepared, codec)
    row.tokens.extend(row.source[:6])
    said = growing.advance(row)
    row.tokens.clear()
    assert said
    assert growing.advance(row) == ""
    echo(row)
    assert not growing.is_done
    assert said + growing.advance(row) == TARGETS[0]
    assert growing.is_done
    assert growing.advance(row) == ""


@given(order=st.lists(st.integers(0, 2), max_size=120))
def test_pieces_are_a_prefix_whatever_the_order(order: list[int]) -> None:
    codec = TranslationTokenizer(BUNDLE / "tokenizer.json", 64)
    prepared = prepare(codec, TEXT)
    growing, said = GrowingText(prepared, codec), ""
    for index in [*order, *[0, 1, 2] * 40]:
        row = prepared.rows[index]
        if row.finish is None and len(row.tokens) < row.size - 1:
            row.tokens.append(row.source[len(row.tokens)])
        elif row.finish is None:
            echo(row)
        said += growing.advance(row)
        assert TEXT.startswith(said)
    assert growing.is_done
    assert said == TEXT
