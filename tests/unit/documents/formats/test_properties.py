"""Java's .properties and Apple's .strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions, find_format

from .roundtrips import read, texts, translated, turned

PROPERTIES = r"""# comment = no text
  ! another: one
title=Open the file
long.text: A text that \
    continues on the next line.\nAnd a line
  a\ key\ of\ words   The weather
wide = Caf\u00e9 \ud83d\ude00 \
empty=
only
url=https://example.com

quoted=You can''t open {0}
bare=You can''t open it"""
STRINGS = r"""/* a comment = "with text"; */
"Hello %@" = "Hello %@, welcome!"; // the end = "no text";
title="Open the \"file\"\nnow";
"é" = "Caf\U00e9 is open";
"app" = "MyApp";
"""


def test_values_of_properties_are_units() -> None:
    document = read("properties", PROPERTIES)
    assert [(unit.where, unit.text) for unit in document.units] == [
        ("title", "Open the file"),
        ("long.text", "A text that continues on the next line.\nAnd a line"),
        ("a key of words", "The weather"),
        ("wide", "Café 😀 empty="),
        ("quoted", "You can't open {0}"),
        ("bare", "You can''t open it"),
    ]
    changed = turned("properties", PROPERTIES)
    assert "key\\ of\\ words   tHE WEATHER\n" in changed
    assert "wide = cAF\\u00e9 \\ud83d\\ude00 EMPTY=\nonly\n" in changed
    assert "quoted=yOU CAN''T OPEN" in changed
    assert translated("properties", "a=One text\r\nb=x\r\n", " für\t1\\2") == "a=\\ f\\u00fcr\\t1\\\\2\r\nb=x\r\n"


def test_characters_are_written_as_the_file_does() -> None:
    assert translated("properties", "a=Grüße an alle", "für 😀") == "a=für 😀"
    latin = read("properties", "a=Grüße an alle".encode("latin-1"), ReadOptions(encoding="latin-1"))
    assert latin.render({0: ("für — €",)}) == "a=für \\u2014 \\u20ac".encode("latin-1")


def test_values_of_strings_are_units() -> None:
    document = read("strings", STRINGS)
    assert [(unit.where, unit.text) for unit in document.units] == [
        ("Hello %@", "Hello %@, welcome!"),
        ("title", 'Open the "file"\nnow'),
        ("é", "Café is open"),
    ]
    assert 'title="oPEN THE \\"FILE\\"\\nNOW";\n' in turned("strings", STRINGS)
    wide = read("strings", STRINGS.encode("utf-16"))
    assert wide.render({0: ("Grüß €",)}).decode("utf-16") == STRINGS.replace("Hello %@, welcome!", "Grüß €")


@pytest.mark.parametrize("data", ['"a" = "b"', '\n"a" "b";', '"a" = "b;\n', "/* a"])
def test_damaged_strings_are_rejected_with_their_line(data: str) -> None:
    with pytest.raises(DamagedDocumentError, match=f"^line {1 + data.startswith(chr(10))}: expected "):
        read("strings", data)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_text_can_be_written(text: str) -> None:
    for name, data in (("properties", "a=one text\nb=other text\n"), ("strings", '"a"="one text"; "b" = "other text";')):
        changed = translated(name, data, f"a text {text}")
        assert texts(read(name, changed)) == [f"a text {text}", "other text"]


def test_names_of_files_select_the_format() -> None:
    names = ("a/messages.properties", "Localizable.STRINGS", "res/values/strings.xml", "a.txt", "Resources.de.resx")
    assert [find_format(path=name).name for name in names] == ["properties", "strings", "android", "text", "resx"]
