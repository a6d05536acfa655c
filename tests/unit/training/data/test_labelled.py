"""Reading labelled text in its three formats, good and malformed."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from triptych_training.data.labelled import QuestionExample, TextExample, WordsExample, read_questions, read_texts, read_words
from triptych_training.errors import CorpusError

from ..toy_text import write

CONTEXT = "The cat eats fish. The dog eats bones."


def fault(read: Callable[[Sequence[str]], object], path: str) -> str:
    with pytest.raises(CorpusError) as caught:
        read([path])
    return str(caught.value)


def squad(*items: dict[str, Any]) -> str:
    return json.dumps({"version": "2.0", "data": [{"title": "a", "paragraphs": [{"context": CONTEXT, "qas": list(items)}]}]})


def item(*answers: tuple[str, int]) -> dict[str, Any]:
    return {"id": "q1", "question": "Who eats?", "answers": [{"text": text, "answer_start": start} for text, start in answers]}


def test_texts_are_read_and_are_all_single_or_all_pairs(tmp_path: Path) -> None:
    single = write(tmp_path / "a.tsv", "good film\tpos\r\n bad film \t neg \n")
    packed = tmp_path / "b.tsv.gz"
    packed.write_bytes(gzip.compress(b"so so\tneg\n"))
    expected = [("good film", "", "pos"), ("bad film", "", "neg"), ("so so", "", "neg")]
    assert read_texts([single, str(packed)]) == [TextExample(*fields) for fields in expected]
    pair = write(tmp_path / "c.tsv", "it rains\tit is wet\tyes\n")
    assert read_texts([pair]) == [TextExample("it rains", "it is wet", "yes")]
    empty = write(tmp_path / "empty.tsv", "")
    assert fault(read_texts, empty) == f"{empty}: no labelled texts"
    mixed = write(tmp_path / "mixed.tsv", "a\tpos\na\tb\tpos\n")
    assert fault(read_texts, mixed) == f"{mixed}: some lines have one text and others two"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no label", "1 tab-separated fields, expected 2 (text, label) or 3 (two texts)"),
        ("a\tb\tc\td", "4 tab-separated fields, expected 2 (text, label) or 3 (two texts)"),
        ("", "the line is empty; remove it"),
        ("a\t ", "a field is empty"),
        ("\tpos", "a field is empty"),
        ("a\t\tpos", "a field is empty"),
    ],
)
def test_a_malformed_line_of_texts_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.tsv", f"one\tpos\n{line}\n")
    assert fault(read_texts, path) == f"{path}:2: {message}"


def test_words_are_read_with_the_last_column_as_their_label(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\n\nThe DT B-NP O\nEU NNP I-NP B-ORG\n\n\n Berlin\tB-LOC\n-DOCSTART- -X- O O\nyes O"
    assert read_words([write(tmp_path / "a.conll", text)]) == [
        WordsExample(("The", "EU"), ("O", "B-ORG")),
        WordsExample(("Berlin",), ("B-LOC",)),
        WordsExample(("yes",), ("O",)),
    ]
    path = write(tmp_path / "a.conll", "10\u00a0000\tB-NUM\r\n\u00a0  O\r\n")
    assert read_words([path]) == [WordsExample(("10\u00a0000", "\u00a0"), ("B-NUM", "O"))]
    path = write(tmp_path / "a.conll", "The O\nBerlin\n")
    assert fault(read_words, path) == f"{path}:2: 'Berlin' has no label, expected a word and a label"
    comments = (
        "# a free comment\n\n# id = 1\tdomain=en\n# text = Hash\nHash O\n# O\n\n# newdoc\n# _ _ O\nBerlin _ _ B-LOC\n\n#tag O"
    )
    assert read_words([write(tmp_path / "a.conll", comments)]) == [
        WordsExample(("Hash", "#"), ("O", "O")),
        WordsExample(("#", "Berlin"), ("O", "B-LOC")),
        WordsExample(("#tag",), ("O",)),
    ]
    for content in ("", "\n\n", "-DOCSTART- O\n", "# id = 1\n"):
        path = write(tmp_path / "a.conll", content)
        assert fault(read_words, path) == f"{path}: no labelled words"


def test_words_with_numbers_before_them_are_rejected(tmp_path: Path) -> None:
    numbered = "# text = Im Haus\n1-2\tIm\t-\n1\tIn\tO\n\n1\tBerlin\tB-LOC\n2\tist\tO\n"
    path = write(tmp_path / "a.conllu", numbered)
    assert fault(read_words, path) == (
        f"{path}: every sentence begins with the word 1; if the first column numbers the words, keep those of words and "
        f"labels, as `cut -f2,3` does"
    )
    other = write(tmp_path / "b.conll", "1\tO\n\nBerlin\tB-LOC\n")
    assert len(read_words([path, other])) == 4


def test_questions_are_read_with_and_without_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", squad(item(("fish", 13), ("cat", 4)), item()))
    assert read_questions([path]) == [
        QuestionExample("Who eats?", CONTEXT, ("fish", "cat"), 13),
        QuestionExample("Who eats?", CONTEXT, (), -1),
    ]
    path = write(tmp_path / "a.json", squad())
    assert fault(read_questions, path) == f"{path}: no questions"
    for text, start in (("fish", 12), ("bird", 4), ("", 3), ("bones.", 1_000)):
        path = write(tmp_path / "a.json", squad(item(("fish", 13), (text, start))))
        assert fault(read_questions, path) == f"{path}: question 'q1': {text!r} is not in its context at {start}"


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", '{"data": [{}]}', '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', '{"data": 3}'),
        '{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": null, "answers": []}]}]}]}',
        '{"data": [{"paragraphs": [{"context": null, "qas": [{"question": "a", "answers": []}]}]}]}',
        *(squad(item()).replace(old, new) for old, new in (("eats?", r"\ud83d"), ("The cat", r"\ud83d"))),
        squad(item(("fish", 13))).replace("13", "Infinity"),
        "[" * 100_000,
    ],
)
def test_other_json_is_rejected(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "a.json", content)
    assert fault(read_questions, path).startswith(f"{path}: not SQuAD's JSON (")
