"""Texts that are made to take long: matching must be linear.

No time is measured: quadratic matching would take minutes here.
"""

from contextlib import suppress

import pytest

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions, find_format
from triptych_documents.formats.structured.keys import is_text
from triptych_documents.rules import Term, TranslationRules
from triptych_documents.segments.protected import ProtectedFinder
from triptych_documents.translation.checking import missing_numbers
from triptych_documents.translation.wrapped_lines import WrappedLines

LENGTH = 40_000
REPEATED = ("/-", "a@", "{", "<", "1,", "http://", "_a", "\\-", "deadbeef0", "a-", "x^", "a~b", "YY-")
PREFIXED = (("%", "0"), ("%(a)", "0"), ("%<a>", "0"), ("www.a", "."))


@pytest.mark.parametrize("text", [*(part * (LENGTH // len(part)) for part in REPEATED), *(a + b * LENGTH for a, b in PREFIXED)])
def test_matching_is_linear(text: str) -> None:
    found = ProtectedFinder(TranslationRules()).find(text + "!")
    assert all(one.start < one.end <= len(text) for one in found)
    is_text(text)


@pytest.mark.parametrize(
    "text", [part * (LENGTH // len(part)) for part in ("a", "{a", "<a", "a://", "%", "- ", "a\n", "aa ", '."')]
)
def test_search_for_wrapped_lines_is_linear(text: str) -> None:
    assert WrappedLines((f"{text}\n{text}",)).pieces


@pytest.mark.parametrize("part", ["\\", "\\\n", "a ", "=", '"', "/*", "//", "#", "\n", "a\\"])
def test_reading_of_messages_is_linear(part: str) -> None:
    for name in ("properties", "strings", "json", "xcstrings"):
        with suppress(DamagedDocumentError):
            find_format(name).read((part * (LENGTH // len(part))).encode(), ReadOptions())


def test_urls_of_markdown_are_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escaping their letters takes quadratic time."""
    monkeypatch.setattr("mdurl.encode", pytest.fail)
    text = "[Some text](https://a.org/\u4e2d) and <https://a.org/\u4e2d>, or ![an image][a].\n\n[a]: \u4e2d 'A title'\n"
    document = find_format("markdown").read(text.encode(), ReadOptions())
    assert document.render({}) == text.encode()
    assert "Some text" in document.units[0].text


def test_nested_placeholders_are_one_match() -> None:
    inner = "{" + "n " * 100 + "}"
    placeholder = "{" + inner * 150 + "\n}"
    assert [(one.start, one.end) for one in ProtectedFinder(TranslationRules()).find(placeholder)] == [(0, len(placeholder))]


def test_many_terms_are_fast() -> None:
    finder = ProtectedFinder(TranslationRules(glossary=tuple(Term(f"a {number}", "b") for number in range(10_000))))
    assert len(finder.find("a b " * 20_000 + "a 77")) == 1


def test_many_numbers_are_fast() -> None:
    source, target = ([f"{number}" for number in range(start, start + 5_000)] for start in (1_000, 20_000))
    assert missing_numbers(" ".join(source), " ".join(target), ("en", "de")) == (source, target)
