"""Plain text reader."""

from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.format import ReadOptions

from .roundtrips import read, texts, translated, turned

LETTER = """Dear reader,

  This paragraph was broken at a width of sixty characters by
  somebody who wrote it long ago, so it is one unit and will
  be broken at that width again.

 * an item that is so long that it goes on in a second line of
   the same indentation
 * a short one
 2) another

> quoted text that is so long that it needs a second line, and
> goes on in it

-----------------
Name    Meaning
tab\tvalue
Roses are red
Violets are blue
"""


def test_paragraphs_items_and_cells_are_units() -> None:
    assert texts(read("text", LETTER)) == [
        "Dear reader,",
        "This paragraph was broken at a width of sixty characters by somebody who wrote it long ago, so it is one unit and will"
        " be broken at that width again.",
        "an item that is so long that it goes on in a second line of the same indentation",
        "a short one",
        "another",
        "quoted text that is so long that it needs a second line, and goes on in it",
        "Name",
        "Meaning",
        "tab",
        "value",
        "Roses are red",
        "Violets are blue",
    ]
    turned("text", LETTER)


def test_paragraphs_keep_width_and_indentation() -> None:
    longer = "This text is longer than the one before, it has many more words, and all of them must go to lines that begin as"
    longer += " before."
    lines = translated("text", LETTER, "Sir,", longer).split("\n")
    assert lines[:5] == [
        "Sir,",
        "",
        "  This text is longer than the one before, it has many more",
        "  words, and all of them must go to lines that begin as",
        "  before.",
    ]
    assert lines[5:] == LETTER.split("\n")[5:]


def test_line_ends_and_byte_order_mark_stay() -> None:
    text = "\ufeffone\r\n\r\ntwo\rthree"
    assert turned("text", text) == "\ufeffONE\r\n\r\nTWO\rTHREE"


def test_wrapping_can_be_set() -> None:
    text = "a poem\nof three\nlines\n"
    assert texts(read("text", text)) == ["a poem", "of three", "lines"]
    assert texts(read("text", text, ReadOptions(wrapped=True))) == ["a poem of three lines"]
    assert (
        texts(read("text", LETTER, ReadOptions(wrapped=False)))[1]
        == "This paragraph was broken at a width of sixty characters by"
    )


def test_lines_of_whole_sentences_are_not_joined() -> None:
    text = (
        "This is a sentence that is as long as lines of a paragraph are.\nThis is one, too, and it begins a line of its own.\n"
    )
    assert len(read("text", text).units) == 2


def test_no_line_starts_like_a_list_item() -> None:
    text = "word " * 11 + "word\n" + "word " * 11 + "end\n"
    changed = translated("text", text, "word " * 11 + "- " + "word " * 12)
    assert texts(read("text", changed)) == [("word " * 11 + "- " + "word " * 12).strip()]


def test_units_have_line_numbers() -> None:
    assert [unit.where for unit in read("text", "a\n\n\n  b\n").units] == ["line 1", "line 4"]


def test_the_encoding_can_be_set() -> None:
    assert read("text", "ä\n".encode("cp1252"), ReadOptions(encoding="cp1252")).render({0: ("ö",)}) == "ö\n".encode("cp1252")


@given(st.lists(st.text("abcde,.", min_size=1, max_size=12).filter(lambda word: word.strip(",.")), min_size=1, max_size=60))
def test_any_words_round_trip(words: list[str]) -> None:
    text = " ".join(words)
    changed = translated("text", LETTER, "x", text)
    assert texts(read("text", changed))[1] == text
