"""Text spans and lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.formats.shared.text_document import LineIndex, replaced


def test_spans_are_replaced_and_everything_else_stays() -> None:
    assert replaced("one two three", [((8, 13), "3"), ((0, 3), "1")]) == "1 two 3"
    assert replaced("one", [((1, 1), "-"), ((3, 3), "!")]) == "o-ne!"
    assert replaced("a", [((1, 1), "b"), ((1, 1), "c")]) == "abc"
    assert replaced("same", []) == "same"


@pytest.mark.parametrize("spans", [[(0, 2), (1, 3)], [(2, 1)], [(0, 9)], [(-1, 2)]])
def test_invalid_spans_are_rejected(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlaps"):
        replaced("four", [(span, "") for span in spans])


def test_all_line_ends_are_recognized() -> None:
    lines = LineIndex("a\nb\r\nc\rd")
    assert lines.starts == [0, 2, 5, 7]
    assert [lines.where(at) for at in (0, 1, 2, 4, 5, 7, 8)] == [f"line {line}" for line in (1, 1, 2, 2, 3, 4, 4)]
    assert lines.span(1, 3) == (2, 7)
    assert lines.span(3, 4) == (7, 8)


@given(st.text(st.sampled_from("ab\r\n\x85\u2028")))
def test_lines_cover_the_text(text: str) -> None:
    lines = LineIndex(text)
    parts = [text[slice(*lines.span(line, line + 1))] for line in range(len(lines.starts))]
    assert "".join(parts) == text
    assert all(part.endswith(("\n", "\r")) for part in parts[:-1])
