"""Glossaries and lists of words to keep."""

import pytest

from triptych_documents import rules
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.rules import Term, read_glossary, read_keep

GOOD = [
    (b"", ()),
    (b"save\tspeichern\n", (Term("save", "speichern"),)),
    (b"\xef\xbb\xbf# remark\r\n\r\n save \t sichern \tin menus\r\nsave\tsichern", (Term("save", "sichern"),)),
    ("Größe\tsize\n".encode("utf-16"), (Term("Größe", "size"),)),
]


@pytest.mark.parametrize(("data", "terms"), GOOD)
def test_terms_are_read(data: bytes, terms: tuple[Term, ...]) -> None:
    assert read_glossary(data, "terms.tsv") == terms


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"a\tb\nsave speichern\n", "terms.tsv, line 2: expected source, tab, target, got 'save speichern'"),
        (b"a\t\n", "line 1: expected source, tab, target, got 'a"),
        (b"a\tb\n\na\tc\n", "terms.tsv, line 3: 'a' has two targets: 'b' and 'c'"),
        (b"a\t\xff\n", "terms.tsv: "),
        (b"a\tb\n" + b"".join(b"a%d\tb\n" % number for number in range(50)), "line 51: more than 50 entries"),
    ],
)
def test_invalid_glossaries_are_rejected(data: bytes, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ENTRIES", 50)
    with pytest.raises(DamagedDocumentError, match=problem):
        read_glossary(data, "terms.tsv")


def test_words_to_keep_are_read() -> None:
    assert read_keep(b"# names\nTriptych\n  Visual Studio \n\nTriptych\n", "keep.txt") == ("Triptych", "Visual Studio")
