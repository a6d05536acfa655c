"""Texts that somebody has made to take long: each pattern must get through them in time that grows with their length alone.

No clock is read. What takes the square of a text's length would take minutes here, and the whole tier with it.
"""

import pytest

from triptych_documents.formats.keys import is_text
from triptych_documents.rules import Rules
from triptych_documents.things import Finder

LENGTH = 200_000
REPEATED = ("/-", "a@", "{", "<", "&", "1,", "http://", "_a", "{}", "a.", "\\-", "~/-", "deadbeef0", "a-", "%(", "`")
PREFIXED = (("%", "0"), ("%(a)", "0"), ("%<a>", "0"), ("%.", "0"), ("%1$", "0"), ("{n", " n"), ("www.a", "."))


@pytest.mark.parametrize("text", [*(part * (LENGTH // len(part)) for part in REPEATED), *(a + b * LENGTH for a, b in PREFIXED)])
def test_no_text_takes_long(text: str) -> None:
    found = Finder(Rules()).find(text + "!")
    assert all(one.start < one.end <= len(text) for one in found)
    is_text(text)


def test_a_placeholder_that_names_a_number_many_times_stands_for_one() -> None:
    inner = "{" + "n " * 100 + "}"
    placeholder = "{" + inner * 150 + "\n}"
    assert [(one.start, one.end) for one in Finder(Rules()).find(placeholder)] == [(0, len(placeholder))]
