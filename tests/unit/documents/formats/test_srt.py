"""SubRip reader."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError

from .roundtrips import read, shown, texts, translated, turned

FILM = """\
1
00:00:01,000 --> 00:00:04,000 X1:10 X2:20
{\\an8}<i>It was a dark
and stormy night.</i>

2
00:00:05,000 --> 00:00:06,500
- Who's there?
- <i>Nobody.</i>

3
00:00:07,000 --> 00:00:08,000
1984

00:00:09,000 --> 00:00:10,000
A cue <b>without</b> a <font color="#ff0000">number</font>\\Nhere

and a blank line
5
00:00:11,000 --> 00:00:12,000

"""


def test_cues_and_speakers_are_units() -> None:
    document = read("srt", FILM)
    assert shown(document) == [
        "⟦<i>⟧It was a dark and stormy night.⟦</i>⟧",
        "Who's there?",
        "⟦<i>⟧Nobody.⟦</i>⟧",
        "1984",
        'A cue ⟦<b>⟧without⟦</b>⟧ a ⟦<font color="#ff0000">⟧number⟦</font>⟧⟦\\N⟧here',
        "and a blank line",
    ]
    assert [unit.where for unit in document.units] == ["cue 1", "cue 2", "cue 2", "cue 3", "cue 4", "cue 4"]
    turned("srt", FILM)


def test_labels_of_speakers_and_sounds_start_units() -> None:
    film = "1\n00:00:01,000 --> 00:00:04,000\n[door opens]\nOLD MAN: Who's\nthere?\n<i>JOHN: Me:\nno One: I.</i>\n"
    document = read("srt", film)
    assert shown(document) == ["[door opens]", "OLD MAN: Who's there?", "⟦<i>⟧JOHN: Me: no One: I.⟦</i>⟧"]
    changed = document.render({1: ("Es ist der ALTE [x] NA: was für ein langer Satz das ist",)}).decode()
    assert "\nEs ist der ALTE [x] NA: was\nfür ein langer Satz das ist\n" in changed


def test_times_and_dashes_stay_and_long_texts_have_two_lines() -> None:
    document = read("srt", FILM)
    open_tag, _, close_tag = document.units[0].pieces
    long = "Es war eine dunkle und stürmische Nacht in einem fernen Land."
    changed = document.render({0: (open_tag, long, close_tag), 1: ("Wer da?",)}).decode()
    assert changed == FILM.replace(
        "It was a dark\nand stormy night.", "Es war eine dunkle und stürmische\nNacht in einem fernen Land."
    ).replace("Who's there?", "Wer da?")


def test_line_ends_of_the_document_are_kept() -> None:
    film = "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\nOne\r\ntwo\r\n\r\n"
    assert turned("srt", film) == film.replace("One\r\ntwo", "oNE TWO")
    assert translated("srt", film, "word " * 12).count("\r\n") == film.count("\r\n")


def test_more_than_two_lines_only_if_two_are_too_short() -> None:
    film = "1\n00:00:01,000 --> 00:00:02,000\nOne\n"
    assert translated("srt", film, "x" * 30 + " " + "y" * 30).count("\n") == 4
    assert translated("srt", film, "word " * 30).split("\n")[2:-1] == ["word word word word word word word word"] * 3 + [
        "word " * 5 + "word"
    ]


def test_placeholders_stay_on_one_line() -> None:
    film = "1\n00:00:01,000 --> 00:00:02,000\nOne\n"
    for text in ("word " * 7 + "{{ user name }} more words", "{ a b } " * 12, "word } " * 12):
        changed = translated("srt", film, text)
        assert all(line.count("{") == line.count("}") or "{" not in text for line in changed.splitlines())
        assert changed.count("\n") > film.count("\n")


MARKUP_LIKE = "<b> ¦ a {\\an8} b ¦ \\N ¦ - a ¦ 00:00:01,000 --> 00:00:02,000 ¦ <\u2060b> ¦ \u2060- a ¦ a < b > c ¦ {y}"


def test_text_that_looks_like_markup_stays_text() -> None:
    film = "1\n00:00:01,000 --> 00:00:02,000\nOne\n"
    for text in MARKUP_LIKE.split(" ¦ "):
        changed = translated("srt", film, text)
        assert texts(read("srt", changed)) == [text]
    assert translated("srt", film, "a < b & c") == film.replace("One", "a < b & c")


@pytest.mark.parametrize("number", ["2\n", ""])
@pytest.mark.parametrize("times", ["-00:00:01,000 --> 00:00:02,000", "00:03,000 --> 00:04,000", "00:00:01,0000 --> 00:00:02,0"])
def test_a_cue_with_unreadable_times_is_reported_and_translated(times: str, number: str) -> None:
    film = f"1\n00:00:00,000 -> 00:00:01,000\nAt 5 -> 6\n\n{number}{times}\nSecond\n"
    document = read("srt", film)
    assert texts(document) == ["At 5 -> 6", "Second"]
    assert [finding.where for finding in document.findings] == ["cue 1, line 2", f"cue 2, line {5 + len(number.split())}"]
    assert times in document.findings[1].message
    assert turned("srt", film) == film.swapcase()


def test_files_without_times_are_rejected() -> None:
    with pytest.raises(DamagedDocumentError, match="line 1: not SubRip"):
        read("srt", "Some text\n")
    assert texts(read("srt", "\n")) == []


@settings(max_examples=60)
@given(st.text("ab <>{}\\N-/>1\u2060\n", min_size=1).filter(lambda text: text.strip()))
def test_any_text_can_be_written(text: str) -> None:
    changed = translated("srt", FILM, "x", text, "y")
    assert texts(read("srt", changed))[1] == " ".join(text.split())
