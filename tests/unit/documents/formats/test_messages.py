"""ICU messages in JSON, YAML, XLIFF and PO: the units of their branches, and what is written."""

import json

import pytest

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.unit import Code, joined

from .roundtrips import mirrored, read, shown, swapped

FILES = "You have {n, plural, =0 {no files} one {# file} other {# files}} in {folder}."


def units(message: str) -> dict[str, str]:
    """Return the shown text of each unit by its selectors."""
    document = read("json", json.dumps([message]))
    assert document.render({}) == json.dumps([message]).encode()
    return {
        unit.where.removeprefix("0 "): "".join(piece.shown if isinstance(piece, Code) else piece for piece in unit.pieces)
        for unit in document.units
    }


def test_each_branch_is_a_sentence() -> None:
    assert units(FILES) == {
        "{=0}": "You have no files in {folder}.",
        "{one}": "You have 1 file in {folder}.",
        "{other}": "You have 25 files in {folder}.",
    }
    assert units("{g, select, male {He has {n, plural, one {a cat} few {# cats}}} other {They wait}}") == {
        "{male one}": "He has a cat",
        "{male few}": "He has 3 cats",
        "{other}": "They wait",
    }
    assert units("{a, plural, =7 {# dogs} other {}} and {b, selectordinal, two {the #nd cat} other {x}}") == {
        "{=7 two}": "{a, number} dogs and the 22nd cat",
        "{=7 other}": "{a, number} dogs and x",
        "{other two}": " and the 22nd cat",
        "{other other}": " and x",
    }
    assert units("{n, plural, offset:1 one {It''s # of us} other {}}") == {"{one}": "It's 1 of us", "{other}": ""}


@pytest.mark.parametrize(
    "message",
    [
        "{n, plural, one {# file}",
        "{n, plural, one} files",
        "{n, plural, } files",
        "{n, plural, one {'{x}'}} files",
        "Number # {n, plural, one {# file} other {# files}}",
        "{n, plural, offset:1 one {# of {g, select, other {all}}}}",
        "{n, plural, " + " ".join(f"={number} {{word}}" for number in range(25)) + "}",
        "many words " * 200 + "{n, plural, " + " ".join(f"={number} {{word}}" for number in range(9)) + "}",
        "{n, plural, other {" * 9 + "word" + "}}" * 9,
    ],
)
def test_what_is_not_understood_or_too_large_stays_whole(message: str) -> None:
    assert list(units(message)) == ["0"]


@pytest.mark.parametrize(("kind", "form"), [("json", '{{"a": "{}", "b": "text"}}'), ("yaml", "a: '{}'\nb: text\n")])
def test_translations_are_written_into_the_branches(kind: str, form: str) -> None:
    source = form.format("It is {n, plural,  one {# day} other {# days} }")
    document = read(kind, source)
    every = {index: mirrored(unit.pieces) for index, unit in enumerate(document.units)}
    expected = form.format("{n, plural, one {iT IS # DAY} other {iT IS # DAYS}}")
    assert document.render(every).decode() == expected.replace("text", "TEXT")
    assert document.render({1: ("Days",)}).decode() == form.format("{n, plural, one {It is # day} other {Days}}")
    assert document.render({2: ("Other text",)}).decode() == source.replace("text", "Other text")
    assert document.render({index: joined(unit.pieces) for index, unit in enumerate(document.units)}) == source.encode()


@pytest.mark.parametrize(("source", "written"), [("It is", "l''#d'x'''y''"), ("It''s", "l''#d''x''''y''")])
def test_apostrophes_do_not_quote(source: str, written: str) -> None:
    document = read("json", json.dumps([f"{{n, plural, one {{{source} #}} other {{}}}}"]))
    sign = document.units[0].codes[0]
    assert json.loads(document.render({0: ("l'", sign, "d'x''y'")})) == [f"{{n, plural, one {{{written}}} other {{}}}}"]


def test_branches_count_as_units() -> None:
    source = json.dumps([FILES] * 10)
    assert len(read("json", source, ReadOptions(max_units=40)).units) == 30
    with pytest.raises(DamagedDocumentError, match="more than 39 segments"):
        read("json", source, ReadOptions(max_units=39))


XLIFF = """<xliff version="1.2"><file original="a" source-language="en" datatype="html"><body><trans-unit id="1">
<source>{}</source></trans-unit></body></file></xliff>"""


def test_codes_stay_in_their_branches() -> None:
    source = XLIFF.format('{N, plural, =0 {just now} other {<x id="1"/> minutes <g id="2">ago</g>}}')
    document = read("xliff", source)
    assert shown(document) == ["just now", '⟦<x id="1"/>⟧ minutes ⟦<g id="2">⟧ago⟦</g>⟧']
    changed = swapped(document, source.encode()).decode()
    assert '>{N, plural, =0 {JUST NOW} other {<x id="1"/> MINUTES <g id="2">AGO</g>}}</target>' in changed


@pytest.mark.parametrize(
    "message",
    [
        '<x id="1"/> {N, plural, one {hour} other {hours}}',  # would be in both branches
        '{N, plural, one {<g id="1">hour} other {hours</g>}}',
        '{N, plural, one {<x id="1"/>}',
    ],
)
def test_messages_whose_codes_cannot_stay_are_not_translated(message: str) -> None:
    document = read("xliff", XLIFF.format(message))
    assert not document.units
    assert [finding.where for finding in document.findings] == ["unit 1"]


def test_messages_in_catalogs_have_branches() -> None:
    catalog = 'msgid "You have {n, plural, one {<b>#</b> file} other {# files}}"\nmsgstr ""\n'
    document = read("po", catalog)
    assert shown(document) == ["You have ⟦<b>⟧⟦#⟧⟦</b>⟧ file", "You have ⟦#⟧ files"]
    changed = swapped(document, catalog.encode()).decode()
    assert 'msgstr "{n, plural, one {yOU HAVE <b>#</b> FILE} other {yOU HAVE # FILES}}"' in changed
