"""JSON reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions

from .roundtrips import read, texts, translated, turned

MESSAGES = """{
  "title": "A \\"quoted\\" title\\n",  "count": 1.50, "on": true,
  "url" : "https://example.org/a b", "id": "msg_title_1",
  "list":["First item", ["Second/item here"], {}], "a.b": {"title": "Dotted key"},
  "title": "Twice"
}
"""
ALL = ReadOptions(keys=("**",))


def test_strings_that_look_like_text_are_units() -> None:
    document = read("json", MESSAGES)
    assert texts(document) == ['A "quoted" title\n', "First item", "Second/item here", "Dotted key", "Twice"]
    assert [unit.where for unit in document.units] == ["title", "list.0", "list.1.0", "a\\.b.title", "title"]
    assert all(unit.keeps_space for unit in document.units)
    turned("json", MESSAGES)


def test_only_the_strings_change() -> None:
    changed = translated("json", MESSAGES, "Ein „Titel“\t", 'Erstes "Element"')
    assert changed == MESSAGES.replace('A \\"quoted\\" title\\n', "Ein „Titel“\\t").replace(
        "First item", 'Erstes \\"Element\\"'
    )


def test_a_number_may_have_any_length() -> None:
    number = "1" * 5_000  # more digits than Python makes an int of
    assert translated("json", f'[{number}, -{number}, "Some text"]', "Ein Text") == f'[{number}, -{number}, "Ein Text"]'


@pytest.mark.parametrize(
    ("keys", "skipped", "found"),
    [
        (("title",), (), ['A "quoted" title\n', "Twice"]),
        (("a\\.b",), (), ["Dotted key"]),
        (("list.*.0",), (), ["Second/item here"]),
        (("list", "id"), ("list.1",), ["msg_title_1", "First item"]),
        ((), ("**.title", "list"), []),
    ],
)
def test_keys_select_values(keys: tuple[str, ...], skipped: tuple[str, ...], found: list[str]) -> None:
    assert texts(read("json", MESSAGES, ReadOptions(keys=keys, skip_keys=skipped))) == found


BUNDLE = """{
  "@@locale": "en",
  "@@context": "Home page",
  "title": "A title",
  "@title": {"description": "Shown at the top", "placeholders": {"n": {"type": "int", "example": "some text"}}},
  "@graph": [{"@type": "Person", "name": "Some name"}]
}
"""


def test_metadata_of_resource_bundles_stays_and_the_language_changes() -> None:
    german = ReadOptions(source_language="en", target_language="de-AT")
    assert texts(read("json", BUNDLE, german)) == ["A title", "Some name"]
    changed = translated("json", BUNDLE, "Ein Titel", options=german)
    assert changed == BUNDLE.replace('"A title"', '"Ein Titel"').replace('"en"', '"de_AT"')
    assert translated("json", BUNDLE, "A title", options=german) == BUNDLE
    assert texts(read("json", BUNDLE, ReadOptions(keys=("@title.description",)))) == ["Shown at the top"]


def test_the_style_of_escapes_is_kept() -> None:
    assert translated("json", '["f\\u00fcr alle"]', "für Ödön") == '["f\\u00fcr \\u00d6d\\u00f6n"]'
    assert translated("json", '["either\\/or not"]', "und/oder nicht") == '["und\\/oder nicht"]'
    latin = read("json", '["für alle"]'.encode("latin-1"), ReadOptions(encoding="latin-1"))
    assert latin.render({0: ("für — alle",)}) == '["für \\u2014 alle"]'.encode("latin-1")


@pytest.mark.parametrize(
    ("data", "place"),
    [("[1, 2", "line 1"), ('{"a": 1}\n\n}', "line 3"), ("", "line 1"), ("[NaN,]", "line 1"), ("{ /* a\n*/ b }", "line 2")],
)
def test_invalid_json_is_rejected_with_its_line(data: str, place: str) -> None:
    with pytest.raises(DamagedDocumentError, match=f"^{place}: not JSON"):
        read("json", data)


def test_comments_stay() -> None:
    data = '{ // "no": "text"\n  "a": "one // text", /* "b\n" */ "c\\"": "other \\"/* text" // end\n}'
    assert texts(read("json", data)) == ["one // text", 'other "/* text']
    assert translated("json", data, "x y") == data.replace("one // text", "x y")


def test_each_of_json_lines_is_a_document() -> None:
    data = '{"a": "Some text", "b": 1}\r\n\n  ["other text"]\n"third text"'
    document = read("jsonl", data)
    assert [(unit.where, unit.text) for unit in document.units] == [
        ("line 1 a", "Some text"),
        ("line 3 0", "other text"),
        ("line 4", "third text"),
    ]
    assert turned("jsonl", data) == data.replace("Some", "sOME").replace("text", "TEXT").replace("other", "OTHER").replace(
        "third", "THIRD"
    )
    assert texts(read("jsonl", data, ReadOptions(keys=("a",)))) == ["Some text"]
    with pytest.raises(DamagedDocumentError, match=r"^line 2: not JSON"):
        read("jsonl", '{"a": 1}\n{"b": }\n')


def test_depth_is_limited() -> None:
    assert texts(read("json", "[" * 100 + '"some text"' + "]" * 100)) == ["some text"]
    with pytest.raises(DamagedDocumentError, match="nested too deep"):
        read("json", "[" * 100_000 + "]" * 100_000)


@given(st.text())
def test_any_text_can_be_written(text: str) -> None:
    changed = translated("json", '{"a": "one text", "b": ["other text"]}', text, options=ALL)
    assert json.loads(changed) == {"a": text, "b": ["other text"]}


def test_lone_surrogates_keep_their_bytes() -> None:
    source = '{"a\\ud83d": "Broken \\ud83d text", "b": "Whole text"}'
    document = read("json", source)
    assert [unit.where for unit in document.units] == ["a?", "b"]
    assert document.render({0: document.units[0].pieces, 1: ("Ganz",)}).decode() == source.replace("Whole text", "Ganz")
