"""Sentence splitting and joining."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_text import sentences as splitting
from triptych_text.sentences import Splitter, TooManySentencesError
from triptych_text.steps import finish

LETTERS = (". ", "! ", "? ", "1.", "Dr. ", "e.g. ", "- ", "* ", "[1]", "</s>", "(A", ".)", "\n\n", "\r\n")
MARK = re.compile(r"(?:[-*•–]|[\d.]+|\(?(?:\d+|[A-Za-z])\))\s+")  # of an item of a list
LETTERS += tuple("aB.\"'“”()\n \t🙂é日。؟\u00a0\u3000\u2028\x00\u200b\x85«»")


def split(text: str, longest: int = 1_000, language: str = "en") -> Sequence[str]:
    """Split a text after checking that it can be joined again."""
    sentences = Splitter(language, lambda sentence: len(sentence) <= longest).split(text)
    assert sentences.join(sentences.texts) == text
    assert all(not gap.strip() or MARK.fullmatch(gap.lstrip()) for gap in sentences.gaps)
    return sentences.texts


GOOD = [
    ("Good morning.", ["Good morning."]),
    ("Hello world. How are you? I'm fine!", ["Hello world.", "How are you?", "I'm fine!"]),
    ("Dr. Smith left at 9 a.m. He met Mr. Jones.", ["Dr. Smith left at 9 a.m.", "He met Mr. Jones."]),
    ("It costs $3.50. See Fig. 3 of www.example.com.", ["It costs $3.50.", "See Fig. 3 of www.example.com."]),
    ('He said "I am here. Are you?" and left. Then he came.', ['He said "I am here. Are you?" and left.', "Then he came."]),
    ("  Title\n\nFirst line\nsecond line. \t\r\n", ["Title", "First line", "second line."]),
    ("1. First thing. 2. Second thing.", ["First thing.", "Second thing."]),
    ("Do this:\n- Open it.\n\t* a-b\n• 5 - 3\n– 2) a) c", ["Do this:", "Open it.", "a-b", "• 5 - 3", "2) a) c"]),
    ("1.2 Overview. 3.4.1. How\n1.5 km. 2.5 Mbit", ["Overview.", "How", "1.5 km.", "2.5 Mbit"]),
    ("-x\n- \n-- y\na) b (c) d\n(12) Go", ["-x", "-", "-- y", "b (c) d", "Go"]),
    ("Really? 🙂 Yes. !!", ["Really?", "🙂 Yes. !!"]),
    ("* * *\nEnd", ["* * *", "End"]),
    ("Use the .NET of https://a.org/?Key=1. Call File.Open.", ["Use the .NET of https://a.org/?Key=1.", "Call File.Open."]),
    ("Run the ./a.sh script. Or the ..\\a.bat script.", ["Run the ./a.sh script.", "Or the ..\\a.bat script."]),
    ("By Thm. 4 and Lem. 5, Alg. 1 ends.", ["By Thm. 4 and Lem. 5, Alg. 1 ends."]),
    ("See Figs. 4 and 5 of vol. 3. The end.", ["See Figs. 4 and 5 of vol. 3.", "The end."]),
    ("A. Open it. B. Close it. iv. Go.", ["A. Open it.", "B. Close it.", "iv. Go."]),
    ("(He was late. Why?) Nobody (not me.) knew.", ["(He was late. Why?)", "Nobody (not me.) knew."]),
    ("", []),
    (" \n\t ", []),
]


@pytest.mark.parametrize(("text", "sentences"), GOOD)
def test_sentences_and_lines_are_split(text: str, sentences: list[str]) -> None:
    assert list(split(text)) == sentences


@pytest.mark.parametrize("language", ["de", "de-DE", "deu_Latn"])
def test_rules_depend_on_the_language(language: str) -> None:
    text = "Er kam am 3. Mai. Das ist gut."
    assert list(split(text, language=language)) == ["Er kam am 3. Mai.", "Das ist gut."]
    assert len(split(text, language="en")) == len(split(text, language="tlh")) == 3
    assert list(split("3. Mai", language=language)) == ["3. Mai"]
    assert list(split("3) Mai", language=language)) == ["Mai"]


@pytest.mark.parametrize("text", ["a\n" * 100_000, "今天。" * 50_000, "Good. " * 30_000])
def test_splitting_stops_at_the_limit(text: str) -> None:
    looked_at: list[str] = []
    splitter = Splitter("en", lambda sentence: not looked_at.append(sentence))
    with pytest.raises(TooManySentencesError):
        finish(splitter.split_steps(text, 10))
    assert len(looked_at) < 20
    assert len(finish(splitter.split_steps(text[:60], 30)).texts) <= 30


@pytest.mark.parametrize("text", ["a\n" * 1_000, "\n" * 1_000, "1. " * 1_000, "今天。" * 1_000])
def test_splitting_has_many_small_steps(text: str) -> None:
    assert sum(1 for _ in Splitter("zh", lambda _: True).split_steps(text, len(text))) >= 900


@given(text=st.lists(st.sampled_from(LETTERS), max_size=40).map("".join))
def test_any_text_survives_the_round_trip(text: str) -> None:
    assert all(sentence == sentence.strip() != "" for sentence in split(text))


def test_long_quotations_are_split_inside() -> None:
    text = "She said: “" + "Yes I am. " * 12 + "End.” He left."
    assert len(split(text)) == 2
    assert list(split(text, longest=40)) == ["She said: “Yes I am.", *["Yes I am."] * 11, "End.”", "He left."]


def test_an_endless_sentence_is_one_sentence() -> None:
    endless = "a" * 50_000 + "."
    assert list(split(f"{endless} Then an end. {endless}")) == [endless, "Then an end.", endless]
    assert list(split("word " * 100 + "end", longest=10)) == ["word " * 100 + "end"]


def test_long_lines_and_quotations_are_split() -> None:
    sentences = [f"This is sentence {number} of a long paragraph." for number in range(2_000)]
    assert list(split(" ".join(sentences))) == sentences
    assert list(split("“" + " ".join(sentences) + "”")) == ["“" + sentences[0], *sentences[1:-1], sentences[-1] + "”"]


def test_splitter_failures_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(language: str, text: str) -> list[str]:
        raise PanicException("end byte index 3 is not a char boundary")

    monkeypatch.setattr(splitting.sentencex, "segment", panic)
    assert list(split("One. Two.")) == ["One.", "Two."]


def test_interrupts_are_not_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(language: str, text: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(splitting.sentencex, "segment", interrupt)
    with pytest.raises(KeyboardInterrupt):
        split("One. Two.")


@pytest.mark.parametrize(
    ("language", "text", "translations", "joined"),
    [
        ("zh", "今天天气很好。我们走吧。", ["It is nice today.", "Let us go."], "It is nice today. Let us go."),
        ("zh", "他说：“好。”我走了。\n完。", ["He said: “Good.”", "I left.", "End."], "He said: “Good.” I left.\nEnd."),
        ("ja", "元気です。行きます。", ["很好。", "我们走吧。"], "很好。我们走吧。"),
        ("zh", "今天很好。走吧。", ["", "Let us go."], "Let us go."),
        ("en", "Fine. Go.", ["很好。", "走吧。"], "很好。 走吧。"),
        ("hi", "ठीक।चलो।", ["Fine.", "Go."], "Fine. Go."),
    ],
)
def test_a_space_is_added_where_only_the_translation_needs_one(
    language: str, text: str, translations: list[str], joined: str
) -> None:
    assert Splitter(language, lambda _: True).split(text).join(translations) == joined
