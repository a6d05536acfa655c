"""Labelled text from files, for fine-tuning.

text classification    `text<TAB>label`, or `text<TAB>text<TAB>label` for pairs, one a line
token classification   `word label` a line (the last of its columns), a blank line between sentences: CoNLL's way
question answering     SQuAD's JSON (Rajpurkar et al. 2016), versions 1.1 and 2.0
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from triptych_training.data.corpus import read_lines
from triptych_training.errors import CorpusError


@dataclass(frozen=True)
class LabelledText:
    """`pair` is empty for a single text."""

    text: str
    pair: str
    label: str


@dataclass(frozen=True)
class LabelledWords:
    """As many labels as words."""

    words: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """`answers` are the texts that count as right; `start` is where the first of them begins, in characters, or -1."""

    question: str
    context: str
    answers: tuple[str, ...]
    start: int


def read_texts(paths: Sequence[str]) -> list[LabelledText]:
    """Every line of every file.

    Raises:
        CorpusError: a file cannot be read or is empty, a line is malformed, or lines with and without pairs are mixed.
    """
    texts = [text for path in paths for text in _texts(Path(path))]
    if not texts:
        raise CorpusError(f"{', '.join(paths)}: hold no labelled texts")
    if len({bool(text.pair) for text in texts}) > 1:
        raise CorpusError(f"{', '.join(paths)}: some lines have one text and others two")
    return texts


def _texts(path: Path) -> Iterator[LabelledText]:
    for number, line in read_lines(path):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) not in (2, 3):
            raise CorpusError(f"{path}:{number}: {len(fields)} tab-separated fields, expected 2 (text, label) or 3 (two texts)")
        if not all(fields):
            raise CorpusError(f"{path}:{number}: a field is empty")
        yield LabelledText(fields[0], fields[1] if len(fields) == 3 else "", fields[-1])


def read_words(paths: Sequence[str]) -> list[LabelledWords]:
    """Every sentence of every file; lines that begin with -DOCSTART- are none.

    Raises:
        CorpusError: a file cannot be read or is empty, or a line has no label.
    """
    sentences = [sentence for path in paths for sentence in _sentences(Path(path))]
    if not sentences:
        raise CorpusError(f"{', '.join(paths)}: hold no labelled words")
    return sentences


def _sentences(path: Path) -> Iterator[LabelledWords]:
    lines = ((number, "" if line.startswith("-DOCSTART-") else line.strip()) for number, line in read_lines(path))
    for filled, block in groupby(lines, lambda line: bool(line[1])):
        if not filled:
            continue
        rows = []
        for number, line in block:
            columns = line.split()
            if len(columns) < 2:
                raise CorpusError(f"{path}:{number}: {line!r} has no label, expected a word and a label")
            rows.append((columns[0], columns[-1]))
        words, labels = zip(*rows, strict=True)
        yield LabelledWords(words, labels)


def read_questions(paths: Sequence[str]) -> list[Question]:
    """Every question of every file.

    Raises:
        CorpusError: a file cannot be read, is not SQuAD's JSON, or an answer is not where it says.
    """
    questions = [question for path in paths for question in _questions(Path(path))]
    if not questions:
        raise CorpusError(f"{', '.join(paths)}: hold no questions")
    return questions


def _questions(path: Path) -> Iterator[Question]:
    try:
        articles = json.loads("\n".join(line for _, line in read_lines(path)))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for item in paragraph["qas"]:
                    yield _question(path, paragraph["context"], item)
    except (KeyError, TypeError, ValueError) as error:
        raise CorpusError(f"{path}: not SQuAD's JSON ({type(error).__name__}: {error})") from error


def _question(path: Path, context: str, item: dict[str, Any]) -> Question:
    answers = [(str(answer["text"]), int(answer["answer_start"])) for answer in item["answers"]]
    for text, start in answers:
        if not text or context[start : start + len(text)] != text:
            raise CorpusError(
                f"{path}: question {item.get('id', item['question'])!r}: {text!r} is not in its context at {start}"
            )
    return Question(item["question"], context, tuple(text for text, _ in answers), answers[0][1] if answers else -1)
