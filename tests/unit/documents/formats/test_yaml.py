"""YAML reader."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions

from .roundtrips import read, texts, translated, turned

TOO_DEEP = r"^line 1: (nested deeper than 1000|not YAML: exceeded maximum nesting depth)"  # or PyYAML 6.0.4's

MESSAGES = """\
%YAML 1.1
---
# Comments stay: "and so on".
de: &base
  title:   Plain text here   # and this
  single: 'It''s quoted'
  double: "Line\\nbreak \\u00e4"
  literal: |
    First line
      indented

    Last line

  folded: >-   # comment
    A paragraph that was broken at
    a width.

    Another.
  many words: a plain text
    of two lines
  number: 12
  answer: yes
  date: 2024-01-01
  name: some_name
  tagged: !!str 42 things
  own: !Ref some thing
  flow: [one text, 'two, texts', {key: "three"}]
  again: *base
? complex key
: value text
...
---
- second document
"""
ALL = ReadOptions(keys=("**",))


def test_strings_that_look_like_text_are_units() -> None:
    document = read("yaml", MESSAGES)
    assert texts(document) == [
        "Plain text here",
        "It's quoted",
        "Line\nbreak ä",
        "First line\n  indented\n\nLast line",
        "A paragraph that was broken at a width.\nAnother.",
        "a plain text of two lines",
        "42 things",
        "one text",
        "two, texts",
        "three",
        "value text",
        "second document",
    ]
    wheres = [unit.where for unit in document.units]
    assert wheres[:2] == ["de.title", "de.single"]
    assert wheres[-5:] == ["de.flow.0", "de.flow.1", "de.flow.2.key", "complex key", "0"]
    turned("yaml", MESSAGES)


def test_styles_are_kept_if_possible() -> None:
    changed = translated(
        "yaml",
        MESSAGES,
        "Neuer Text",
        "Es gibt's",
        "Zeile\tzwei\n„ä“",
        "Erste\n\n  Zweite",
        "Ein Absatz, der breiter ist als der Platz, den er hat.\nNoch einer.",
        "noch einer",
    )
    expected = [
        "  title:   Neuer Text   # and this",
        "  single: 'Es gibt''s'",
        '  double: "Zeile\\tzwei\\n„ä“"',
        "  literal: |",
        "    Erste",
        "",
        "      Zweite",
        "",
        "  folded: >-   # comment",
        "    Ein Absatz, der breiter ist",
        "    als der Platz, den er hat.",
        "",
        "    Noch einer.",
        "  many words: noch einer",
    ]
    assert changed.split("\n")[4:18] == expected


SPECIAL = (
    "yes ¦ 12 ¦ a: b ¦ a #b ¦ - a ¦ # a ¦  a ¦ a  ¦ [a ¦ {a} ¦ &a ¦ *a ¦ !a ¦ | ¦ %a ¦ @a ¦ `a ¦ 'a ¦ \"a ¦ ~ ¦  ¦ a\nb ¦ "
    "\ta ¦ null ¦ 2024-01-01 ¦ --- ¦ ... ¦ a, b ¦ a] ¦ ? a ¦ << ¦ = ¦ a\x85b ¦ \u2028 ¦ \ufeffa ¦ \\ ¦ 😀 a"
)


@pytest.mark.parametrize("text", SPECIAL.split(" ¦ "))
def test_special_text_is_quoted(text: str) -> None:
    for source in ("- some text\n", "[some text, more text]\n", "- 'some text'\n", "- |\n  some text\n", "- >-\n  some text\n"):
        changed = translated("yaml", source, text, options=ALL)
        assert yaml.safe_load(changed)[0].removesuffix("\n") == text, source


def test_anchors_are_changed_once() -> None:
    assert translated("yaml", "a: &x some text\nb: *x\n", "other text") == "a: &x other text\nb: *x\n"


def test_keys_select_values() -> None:
    assert texts(read("yaml", MESSAGES, ReadOptions(keys=("de.name", "de.flow.*")))) == [
        "some_name",
        "one text",
        "two, texts",
        "three",
    ]


def test_complex_keys_are_not_translated() -> None:
    assert texts(read("yaml", "? [a key, {of: things}]\n: value text\n? {x: y}\n: [more text]\n")) == [
        "value text",
        "more text",
    ]


@pytest.mark.parametrize(
    ("data", "place"), [("a: [1\n", "line 2"), ("a: b: c\n", "line 1"), ("\ta: b\n", "line 1"), ("a: *x\n  b", "line 2")]
)
def test_invalid_yaml_is_rejected_with_its_line(data: str, place: str) -> None:
    with pytest.raises(DamagedDocumentError, match=f"^{place}: not YAML"):
        read("yaml", data)


def test_aliases_are_not_expanded_and_depth_needs_no_stack() -> None:
    bomb = "a0: &a0 [text here]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
    assert texts(read("yaml", bomb)) == ["text here"]
    assert texts(read("yaml", "[" * 900 + "some text" + "]" * 900)) == ["some text"]
    with pytest.raises(DamagedDocumentError, match=TOO_DEEP):
        read("yaml", "[" * 50_000)
    with pytest.raises(DamagedDocumentError, match=TOO_DEEP):
        read("yaml", "[" * 1_500 + "some text" + "]" * 1_500)


@given(st.text(), st.sampled_from(["a: some text\n", "a: 'some text'\n", 'a: "some text"\n', "a: {b: [some text]}\n"]))
def test_any_text_can_be_written(text: str, source: str) -> None:
    changed = translated("yaml", source, text, options=ALL)
    found = yaml.safe_load(changed)["a"]
    assert (found["b"][0] if isinstance(found, dict) else found) == text


@given(st.text("ab \n:#-'\t"), st.sampled_from(["|", ">", "|-", ">-", "|+", "|  # c"]))
def test_any_text_can_be_written_into_blocks(text: str, header: str) -> None:
    source = f"x:\n  - {header}\n    some text\n\n    more\n  - next text\ny: z\n"
    changed = translated("yaml", source, text, options=ALL)
    trailing = yaml.safe_load(source)["x"][0].removeprefix("some text\n").removeprefix("\n").removeprefix("more")
    assert yaml.safe_load(changed) == {"x": [text + trailing, "next text"], "y": "z"}


@pytest.mark.parametrize(
    ("data", "target", "changed"),
    [
        ("# a\nen:\n  title: some text\n", "de", "# a\nde:\n  title: SOME TEXT\n"),
        ("'en_GB': {title: some text}\n", "deu_Latn", "'de': {title: SOME TEXT}\n"),
        (
            "en:\n  title: some text\n",
            "no",
            "en:\n  title: some text\n".replace("en:", '"no":').replace("some text", "SOME TEXT"),
        ),
        ("en:\n  title: some text\n", "", "en:\n  title: SOME TEXT\n"),
        ("fr:\n  title: some text\n", "de", "fr:\n  title: SOME TEXT\n"),
        ("en:\n  title: some text\nfr: {}\n", "de", "en:\n  title: SOME TEXT\nfr: {}\n"),
        ("--- # a\r\nen: # b\r\n\r\n  # c\r\n  d: some text", "de", "--- # a\r\nde: # b\r\n\r\n  # c\r\n  d: SOME TEXT"),
        ("en:\n- some text\n", "de", "en:\n- SOME TEXT\n"),
        ("en:" + "\n" * 10_000 + "a: some text\n", "de", "en:" + "\n" * 10_000 + "a: SOME TEXT\n"),
        ("en: some text\n", "de", "en: SOME TEXT\n"),
        ("&x en:\n  title: some text\n", "de", "&x en:\n  title: SOME TEXT\n"),
        ("--- {en: {title: some text}}\n--- {en: {}}\n", "de", "--- {en: {title: SOME TEXT}}\n--- {en: {}}\n"),
    ],
)
def test_the_language_of_message_files_of_rails_is_that_of_the_target(data: str, target: str, changed: str) -> None:
    document = read("yaml", data, ReadOptions(source_language="en", target_language=target))
    assert document.render({0: ("SOME TEXT",)}).decode() == changed
    assert document.render({}).decode() == data
